#include "engine_core/models/eagle_head.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace tandem {
namespace {

// The logit of an id that the head does not know: never drawn, and no infinity, which would be an
// error to the sampler.
constexpr float kUnknown = -1e30F;

StatusOr<LinearLayer> LoadOne(const LoadContext& context, const char* name, int64_t rows,
                              int64_t columns, const LinearOptions& options = {}) {
  const StoredMatrix block[] = {{.name = name, .rows = rows, .columns = columns}};
  return LoadLinear(context, block, options);
}

}  // namespace

StatusOr<std::unique_ptr<EagleHead>> EagleHead::Load(const LoadContext& context,
                                                     const EagleConfig& config,
                                                     const Model& target) {
  LoadContext part = context;
  part.stage = kNoEnds;
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::Load(part, {}));
  std::unique_ptr<EagleHead> head(new EagleHead(config, &context.backend, std::move(decoder)));
  RETURN_IF_ERROR(head->LoadMatrices(context, target));
  if (head->is_eagle3()) RETURN_IF_ERROR(head->LoadEagle3(context));
  RETURN_IF_ERROR(head->Allocate(context));
  return head;
}

Status EagleHead::LoadMatrices(const LoadContext& context, const Model& target) {
  const int64_t hidden = context.config.hidden_size, num_ids = context.config.vocab_size;
  const LinearOptions table = {.format = context.formats.embedding};
  const bool has_midlayer = context.weights.Has("midlayer.self_attn.q_proj.weight");
  const LayerPlace place = {.idx = 0, .prefix = has_midlayer ? "midlayer" : "layers.0"};
  ASSIGN_OR_RETURN(fc_,
                   LoadOne(context, "fc", hidden, is_eagle3() ? config_.state_width() : 2 * hidden,
                           {.has_bias = context.weights.Has("fc.bias")}));
  if (context.weights.Has("embed_tokens.weight")) {
    ASSIGN_OR_RETURN(own_embedding_, LoadOne(context, "embed_tokens", num_ids, hidden, table));
  }
  if (is_eagle3() || context.weights.Has("lm_head.weight")) {
    ASSIGN_OR_RETURN(own_head_,
                     LoadOne(context, "lm_head", config_.draft_vocab_size, hidden, table));
  }
  embedding_ = own_embedding_.weight ? own_embedding_.weight.get() : &target.embedding_table();
  head_ = own_head_.weight ? own_head_.weight.get() : &target.head();
  const bool has_bias = context.config.attention_bias;
  const auto qkv = QkvBlocks(context, place, is_eagle3() ? 2 * hidden : hidden);
  ASSIGN_OR_RETURN(attention_.qkv, LoadLinear(context, qkv, {.has_bias = has_bias}));
  ASSIGN_OR_RETURN(attention_.out, LoadOutProjection(context, place, has_bias));
  attention_.options = AttentionOptionsOf(context.config, place.idx);
  ASSIGN_OR_RETURN(post_attention_norm_,
                   LoadRmsNorm(context, place.prefix + ".post_attention_layernorm"));
  ASSIGN_OR_RETURN(mlp_, LoadGatedMlp(context, place));
  if (!is_eagle3()) return OkStatus();
  ASSIGN_OR_RETURN(input_norm_, LoadRmsNorm(context, place.prefix + ".input_layernorm"));
  ASSIGN_OR_RETURN(state_norm_, LoadRmsNorm(context, place.prefix + ".hidden_norm"));
  return OkStatus();
}

Status EagleHead::LoadEagle3(const LoadContext& context) {
  ASSIGN_OR_RETURN(output_norm_, LoadRmsNorm(context, "norm"));
  if (!context.weights.Has("d2t")) {
    if (config_.draft_vocab_size == context.config.vocab_size) return OkStatus();
    return InvalidArgumentError("draft_vocab_size is " + std::to_string(config_.draft_vocab_size) +
                                " of " + std::to_string(context.config.vocab_size) +
                                ", and there is no tensor d2t");
  }
  return LoadIds(context);
}

// d2t[i] is what must be added to i.
Status EagleHead::LoadIds(const LoadContext& context) {
  const int64_t num_ids = config_.draft_vocab_size;
  ASSIGN_OR_RETURN(const StoredTensor d2t, context.weights.GetStored("d2t"));
  if (d2t.dtype() != "I64" || d2t.shape() != std::vector<int64_t>{num_ids}) {
    return InvalidArgumentError("tensor d2t must be I64 of " + std::to_string(num_ids) +
                                " numbers, it is " + d2t.dtype() + " of " +
                                std::to_string(d2t.num_elements()));
  }
  std::vector<int32_t> places(static_cast<size_t>(context.config.vocab_size), -1);
  for (int64_t i = 0; i < num_ids; ++i) {
    int64_t offset = 0;
    std::memcpy(&offset, d2t.bytes().data() + i * int64_t{sizeof(offset)}, sizeof(offset));
    if (offset < -i || offset >= context.config.vocab_size - i) {
      return InvalidArgumentError("tensor d2t: number " + std::to_string(i) + " is " +
                                  std::to_string(offset) + ", which names no token");
    }
    places[static_cast<size_t>(i + offset)] = static_cast<int32_t>(i);
  }
  Device& device = context.backend.device();
  ASSIGN_OR_RETURN(places_, device.Allocate(DType::kI32, {context.config.vocab_size}));
  device.CopyIn(places_, Tensor(places.data(), DType::kI32, {context.config.vocab_size}));
  return OkStatus();
}

Status EagleHead::Allocate(const LoadContext& context) {
  ASSIGN_OR_RETURN(memory_, HeadMemory::Allocate(context, config_.state_width()));
  if (places_.view().empty()) return OkStatus();
  ASSIGN_OR_RETURN(draft_logits_,
                   context.backend.device().Allocate(
                       DType::kF32, {context.limits.max_logits_rows, config_.draft_vocab_size}));
  return OkStatus();
}

void EagleHead::Forward(const HeadStep& step) {
  num_tokens_ = step.token_ids.rows();
  ops_->Embedding(RowsOf(memory_.embedded), step.token_ids, *embedding_);
  const Tensor taken = memory_.TakeStates(ops_, step);
  const LayerKv kv = step.kv_cache->layer(0);
  const Tensor states = RowsOf(memory_.states);
  if (is_eagle3()) {
    ForwardEagle3(taken, step.states.empty());
    decoder_.Continue(states);
    decoder_.AttendTo(RowsOf(memory_.input), attention_, kv, *step.plan);
  } else {
    ForwardEagle(taken);
    decoder_.Continue(states);
    decoder_.Norm({});
    decoder_.Attend(attention_, kv, *step.plan);
  }
  decoder_.Norm(post_attention_norm_);
  decoder_.RunMlp(mlp_);
  if (config_.norm_output) ops_->RmsNorm(states, states, output_norm_.weight, epsilon_);
}

// states = fc [embedding, state].
void EagleHead::ForwardEagle(const Tensor& taken) {
  const int64_t hidden = config_.layer.hidden_size;
  const Tensor input = RowsOf(memory_.input);
  ops_->Convert(input.Columns(0, hidden), RowsOf(memory_.embedded));
  ops_->Convert(input.Columns(hidden, hidden), taken);
  ops_->Linear(RowsOf(memory_.states), input, *fc_.weight, fc_.bias);
}

// states = h; input = [norm embedding, norm h].
void EagleHead::ForwardEagle3(const Tensor& taken, bool is_own) {
  const int64_t hidden = config_.layer.hidden_size;
  const Tensor input = RowsOf(memory_.input), states = RowsOf(memory_.states);
  if (is_own) {
    ops_->Convert(states, taken);
  } else {
    ops_->Linear(states, taken, *fc_.weight, fc_.bias);
  }
  ops_->RmsNorm(input.Columns(0, hidden), RowsOf(memory_.embedded), input_norm_.weight, epsilon_);
  ops_->RmsNorm(input.Columns(hidden, hidden), states, state_norm_.weight, epsilon_);
  if (config_.norm_before_residual) {
    ops_->RmsNorm(states, states, state_norm_.weight, epsilon_);
  }
}

void EagleHead::Logits(const Tensor& logits, const Tensor& rows) {
  const int64_t count = rows.rows();
  const Tensor last = memory_.last.view().Rows(0, count),
               x = memory_.last_act.view().Rows(0, count);
  ops_->GatherRows(last, memory_.states.view(), rows);
  if (is_eagle3() && !config_.norm_output) {
    ops_->RmsNorm(x, last, output_norm_.weight, epsilon_);
  } else {
    ops_->Convert(x, last);
  }
  if (places_.view().empty()) return ops_->Linear(logits, x, *head_);
  const Tensor known = draft_logits_.view().Rows(0, count);
  ops_->Linear(known, x, *head_);
  ops_->GatherColumns(logits, known, places_, kUnknown);
}

}  // namespace tandem
