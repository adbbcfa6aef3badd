#include "engine_core/models/mtp_head.h"

#include <utility>
#include <vector>

#include "engine_core/models/registry.h"

namespace tandem {

StatusOr<ModelConfig> MtpConfig(const ModelConfig& target) {
  if (target.is_uneven() || target.recurrent.num_layers() > 0 || target.is_bidirectional ||
      target.index.dim > 0) {
    return UnimplementedError("method mtp is not built for " + target.architecture);
  }
  ModelConfig config = target;
  config.num_layers = 1;
  for (std::vector<bool>* layers :
       {&config.sliding_layers, &config.mixture_layers, &config.rope_layers}) {
    if (!layers->empty()) *layers = {layers->back()};
  }
  return config;
}

StatusOr<std::unique_ptr<MtpHead>> MtpHead::Load(const LoadContext& context, int64_t num_layers,
                                                 const Model& target) {
  const std::string layer = "model.layers." + std::to_string(num_layers);
  if (!context.weights.Has(layer + ".eh_proj.weight")) {
    return InvalidArgumentError("method mtp: the checkpoint has no tensor " + layer +
                                ".eh_proj.weight, so no layer that predicts further ahead");
  }
  std::unique_ptr<MtpHead> head(new MtpHead(context, target));
  RETURN_IF_ERROR(head->LoadParts(context, layer));
  ASSIGN_OR_RETURN(head->memory_, HeadMemory::Allocate(context, context.config.hidden_size));
  std::vector<float> is_embedded(static_cast<size_t>(context.limits.max_positions), 1);
  is_embedded[0] = 0;
  ASSIGN_OR_RETURN(
      head->is_embedded_,
      context.backend.device().Upload(
          Tensor(is_embedded.data(), DType::kF32, {context.limits.max_positions, 1}), DType::kF32));
  return head;
}

Status MtpHead::LoadParts(const LoadContext& context, const std::string& layer) {
  const StoredMatrix joined[] = {
      {.name = layer + ".eh_proj", .rows = hidden_, .columns = 2 * hidden_}};
  ASSIGN_OR_RETURN(joined_, LoadLinear(context, joined));
  ASSIGN_OR_RETURN(embedding_norm_, LoadRmsNorm(context, layer + ".enorm"));
  ASSIGN_OR_RETURN(state_norm_, LoadRmsNorm(context, layer + ".hnorm"));
  ASSIGN_OR_RETURN(output_norm_, LoadRmsNorm(context, layer + ".shared_head.norm"));
  LoadContext alone = context;
  alone.only_layer = layer;
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
  ops_->ScaleRows(normed, is_embedded_, step.plan->batch().positions);
  ops_->RmsNorm(input.Columns(hidden_, hidden_), taken, state_norm_.weight, epsilon_);
  ops_->Linear(RowsOf(memory_.states), input, *joined_.weight, joined_.bias);
  layer_->Forward({.token_ids = step.token_ids, .plan = step.plan, .kv_cache = step.kv_cache}, 0,
                  RowsOf(memory_.states));
}

void MtpHead::Logits(const Tensor& logits, const Tensor& rows) {
  const Tensor last = memory_.last.view().Rows(0, rows.rows()),
               x = memory_.last_act.view().Rows(0, rows.rows());
  ops_->GatherRows(last, memory_.states.view(), rows);
  ops_->RmsNorm(x, last, output_norm_.weight, epsilon_);
  ops_->Linear(logits, x, *head_);
}

}  // namespace tandem
