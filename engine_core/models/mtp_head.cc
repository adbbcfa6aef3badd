#include "engine_core/models/mtp_head.h"

#include <utility>
#include <vector>

#include "engine_core/models/registry.h"

namespace tandem {
namespace {

// num_layers: of the target.
MtpNames NamesOf(const ModelConfig& config, int64_t num_layers) {
  if (IsMtpApart(config)) {
    return {"mtp.layers.0", "mtp.fc", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden",
            "mtp.norm"};
  }
  const std::string layer = "model.layers." + std::to_string(num_layers);
  return {layer, layer + ".eh_proj", layer + ".enorm", layer + ".hnorm",
          layer + ".shared_head.norm"};
}

}  // namespace

bool IsMtpApart(const ModelConfig& config) { return config.attn_output_gate; }

StatusOr<ModelConfig> MtpConfig(const ModelConfig& target) {
  const bool has_states = target.recurrent.num_layers() > 0;
  if (target.is_uneven() || (has_states && !IsMtpApart(target)) || target.is_bidirectional ||
      target.index.dim > 0) {
    return UnimplementedError("method mtp is not built for " + target.architecture);
  }
  ModelConfig config = target;
  config.num_layers = 1;
  config.recurrent = {};
  for (std::vector<bool>* layers :
       {&config.sliding_layers, &config.mixture_layers, &config.rope_layers}) {
    if (!layers->empty()) *layers = {layers->back()};
  }
  return config;
}

StatusOr<std::unique_ptr<MtpHead>> MtpHead::Load(const LoadContext& context, int64_t num_layers,
                                                 const Model& target) {
  const MtpNames names = NamesOf(context.config, num_layers);
  if (!context.weights.Has(names.joined + ".weight")) {
    return InvalidArgumentError("method mtp: the checkpoint has no tensor " + names.joined +
                                ".weight, so no layer that predicts further ahead");
  }
  std::unique_ptr<MtpHead> head(new MtpHead(context, target));
  RETURN_IF_ERROR(head->LoadParts(context, names));
  ASSIGN_OR_RETURN(head->memory_, HeadMemory::Allocate(context, context.config.hidden_size));
  if (head->is_apart_) return head;
  std::vector<float> is_embedded(static_cast<size_t>(context.limits.max_positions), 1);
  is_embedded[0] = 0;
  ASSIGN_OR_RETURN(
      head->is_embedded_,
      context.backend.device().Upload(
          Tensor(is_embedded.data(), DType::kF32, {context.limits.max_positions, 1}), DType::kF32));
  return head;
}

Status MtpHead::LoadParts(const LoadContext& context, const MtpNames& names) {
  const StoredMatrix joined[] = {{.name = names.joined, .rows = hidden_, .columns = 2 * hidden_}};
  ASSIGN_OR_RETURN(joined_, LoadLinear(context, joined));
  const float offset = is_apart_ ? 1 : 0;  // as of the model's other norms
  ASSIGN_OR_RETURN(embedding_norm_, LoadRmsNorm(context, names.embedding_norm, offset));
  ASSIGN_OR_RETURN(state_norm_, LoadRmsNorm(context, names.state_norm, offset));
  ASSIGN_OR_RETURN(output_norm_, LoadRmsNorm(context, names.output_norm, offset));
  LoadContext alone = context;
  alone.only_layer = names.layer;
  ASSIGN_OR_RETURN(layer_, LoadLayerAlone(alone));
  return OkStatus();
}

void MtpHead::Forward(const HeadStep& step) {
  num_tokens_ = step.token_ids.rows();
  const Tensor embedded = RowsOf(memory_.embedded), input = RowsOf(memory_.input);
  ops_->Embedding(embedded, step.token_ids, *embedding_);
  const Tensor taken = memory_.TakeStates(ops_, step);
  const Tensor normed = input.Columns(0, hidden_);
  ops_->RmsNorm(normed, embedded, embedding_norm_.weight, epsilon_);
  if (!is_apart_) ops_->ScaleRows(normed, is_embedded_, step.plan->batch().positions);
  ops_->RmsNorm(input.Columns(hidden_, hidden_), taken, state_norm_.weight, epsilon_);
  ops_->Linear(RowsOf(memory_.states), input, *joined_.weight, joined_.bias);
  layer_->Forward({.token_ids = step.token_ids, .plan = step.plan, .kv_cache = step.kv_cache}, 0,
                  RowsOf(memory_.states));
  if (!is_apart_) return;
  ops_->RmsNorm(RowsOf(memory_.states), RowsOf(memory_.states), output_norm_.weight, epsilon_);
}

void MtpHead::Logits(const Tensor& logits, const Tensor& rows) {
  const Tensor last = memory_.last.view().Rows(0, rows.rows()),
               x = memory_.last_act.view().Rows(0, rows.rows());
  ops_->GatherRows(last, memory_.states.view(), rows);
  if (is_apart_) {
    ops_->Convert(x, last);
  } else {
    ops_->RmsNorm(x, last, output_norm_.weight, epsilon_);
  }
  ops_->Linear(logits, x, *head_);
}

}  // namespace tandem
