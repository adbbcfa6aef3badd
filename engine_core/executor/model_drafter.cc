#include "engine_core/executor/model_drafter.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "common/clock.h"
#include "engine_core/executor/model_sizes.h"
#include "engine_core/sampling/row_math.h"

namespace tandem {

Status CheckDraftModel(const ModelConfig& target, const ModelConfig& draft,
                       const SpeculativeConfig& speculation) {
  if (draft.vocab_size != target.vocab_size) {
    return InvalidArgumentError("--speculative-config: model " + speculation.model +
                                " has a vocabulary of " + std::to_string(draft.vocab_size) +
                                " tokens, it must be the target's of " +
                                std::to_string(target.vocab_size));
  }
  const int64_t longest = draft.max_position_embeddings;
  if (speculation.max_model_len.value_or(0) <= longest) return OkStatus();
  return InvalidArgumentError("--speculative-config: max_model_len is " +
                              std::to_string(*speculation.max_model_len) +
                              ", must be at most the model's " + std::to_string(longest));
}

int32_t DraftPositions(const ModelConfig& draft, const SpeculativeConfig& speculation,
                       const ExecutorLimits& limits) {
  const int64_t longest =
      std::min(draft.max_position_embeddings,
               int64_t{speculation.max_model_len.value_or(std::numeric_limits<int32_t>::max())});
  return static_cast<int32_t>(std::min(longest, int64_t{limits.max_model_len}));
}

ModelDrafter::ModelDrafter(Backend* backend, DraftModel draft, KvFormat kv_format,
                           InputBatch* batch)
    : backend_(backend),
      batch_(batch),
      model_(std::move(draft.model)),
      kv_spec_(KvSpecOf(draft.config, batch->limits().block_size, 0, kv_format)),
      attention_shape_(AttentionShapeOf(draft.config)),
      max_positions_(draft.max_positions),
      num_taken_(static_cast<size_t>(batch->limits().max_num_seqs)),
      written_(num_taken_.size()) {
  if (draft.draws) {
    scratch_ = std::make_unique<ScratchPool>(static_cast<size_t>(backend->num_threads()),
                                             static_cast<size_t>(batch->limits().vocab_size));
    sampling_.resize(num_taken_.size());
  }
  CHECK(backend->device().memory_is_host()) << "drafts are not built for devices";
  CHECK_EQ(draft.config.vocab_size, batch->limits().vocab_size);
}

StatusOr<std::unique_ptr<ModelDrafter>> ModelDrafter::Create(Backend* backend, DraftModel draft,
                                                             KvFormat kv_format,
                                                             InputBatch* batch) {
  std::unique_ptr<ModelDrafter> drafter(
      new ModelDrafter(backend, std::move(draft), kv_format, batch));
  RETURN_IF_ERROR(drafter->Allocate());
  return drafter;
}

Status ModelDrafter::Allocate() {
  const ExecutorLimits& limits = batch_->limits();
  const int64_t tokens = limits.max_num_batched_tokens, seqs = limits.max_num_seqs;
  ASSIGN_OR_RETURN(plan_, backend_->MakeAttentionPlan(attention_shape_, tokens, seqs));
  ASSIGN_OR_RETURN(
      inputs_,
      StepInputs::Create(&backend_->device(), {.num_tokens = tokens,
                                               .num_requests = seqs,
                                               .num_logits_rows = seqs,
                                               .attention_work = plan_->WorkSize(tokens, seqs),
                                               .table_columns = batch_->max_blocks_per_request()}));
  const int64_t num_rows = std::min(seqs, ModelLimitsOf(limits).max_logits_rows);
  ASSIGN_OR_RETURN(logits_,
                   backend_->device().Allocate(DType::kF32, {num_rows, limits.vocab_size}));
  layout_.Reserve(seqs);
  guesses_.reserve(static_cast<size_t>(seqs));
  drafting_.reserve(static_cast<size_t>(seqs));
  for (std::vector<TokenId>& drafts : written_) {
    drafts.reserve(static_cast<size_t>(limits.drafts.num_speculative_tokens));
  }
  return OkStatus();
}

Status ModelDrafter::AllocateKvCache(int32_t num_blocks) {
  kv_cache_.reset();
  kv_spec_.num_blocks = num_blocks;
  num_filled_.assign(static_cast<size_t>(num_blocks), 0);
  ASSIGN_OR_RETURN(kv_cache_, backend_->AllocateKvCache(kv_spec_));
  return OkStatus();
}

// ---- before a step ----

void ModelDrafter::AppendBlocks(const ScheduledRequest& request,
                                std::span<const BlockId> block_ids) {
  const bool enters = request.kind != ScheduledKind::kRunning;
  const int32_t num_known = enters ? request.num_computed_tokens : 0;
  const auto num_cached = static_cast<size_t>(num_known / kv_spec_.block_size);
  for (size_t i = std::min(num_cached, block_ids.size()); i < block_ids.size(); ++i) {
    num_filled_[static_cast<size_t>(Index(block_ids[i]))] = 0;
  }
  if (!enters) return;
  int32_t num_taken = 0;
  for (size_t i = 0; i < num_cached; ++i) {
    const int32_t num_filled = num_filled_[static_cast<size_t>(Index(block_ids[i]))];
    num_taken += num_filled;
    if (num_filled < kv_spec_.block_size) break;
  }
  NumTaken(request.slot) = num_taken;
  Written(request.slot).clear();
  if (scratch_ == nullptr) return;
  SamplingConfig& sampling = sampling_[static_cast<size_t>(Index(request.slot))];
  sampling = batch_->row(request.slot).sampling;
  sampling.num_logprobs = -1;
}

// ---- after it was sampled ----

// The last draft is not an input, and the first one follows from the last token.
int32_t ModelDrafter::RoomFor(RequestSlot slot) const {
  const InputBatch::Row& row = batch_->row(slot);
  if (row.embeddings != nullptr) return 0;  // they are the target's
  const int32_t num_positions = std::min(max_positions_, row.num_blocks * kv_spec_.block_size);
  return std::max(0, num_positions - row.num_tokens + 1);
}

int32_t ModelDrafter::NumBehind(RequestSlot slot) const {
  return batch_->row(slot).num_tokens - num_taken_[static_cast<size_t>(Index(slot))];
}

void ModelDrafter::Propose(std::span<const Wish> wishes) {
  drafting_.clear();
  for (const Wish& wish : wishes) KeepAccepted(wish.slot);
  TakeIn(wishes);
  while (DraftNext()) {
  }
  for (const Wish& wish : wishes) {
    if (wish.drafts == nullptr || wish.drafts->empty()) continue;
    Written(wish.slot).assign(wish.drafts->begin(), wish.drafts->end() - 1);
  }
}

// The keys and values of a draft that was accepted are those of the token.
void ModelDrafter::KeepAccepted(RequestSlot slot) {
  if (Written(slot).empty()) return;
  const std::span<const TokenId> tokens = batch_->token_ids(slot);
  int32_t end = NumTaken(slot);
  for (const TokenId draft : Written(slot)) {
    // The last token is an input in any case: the first draft comes from its logits.
    if (static_cast<size_t>(end) + 1 >= tokens.size()) break;
    if (tokens[static_cast<size_t>(end)] != draft) break;
    ++end;
  }
  Written(slot).clear();
  MarkTaken(slot, end);
}

void ModelDrafter::MarkTaken(RequestSlot slot, int32_t end) {
  const std::span<const int32_t> blocks = batch_->block_table(slot);
  const int32_t block_size = kv_spec_.block_size;
  for (int32_t i = NumTaken(slot) / block_size; i * block_size < end; ++i) {
    int32_t& num_filled = num_filled_[static_cast<size_t>(blocks[static_cast<size_t>(i)])];
    num_filled = std::max(num_filled, std::min(end - i * block_size, block_size));
  }
  NumTaken(slot) = end;
}

void ModelDrafter::TakeIn(std::span<const Wish> wishes) {
  layout_.Begin();
  int32_t room = batch_->limits().max_num_batched_tokens;
  for (const Wish& wish : wishes) {
    const InputBatch::Row& row = batch_->row(wish.slot);
    if (!row.in_use || row.embeddings != nullptr) continue;
    const int32_t num_tokens = std::min(
        {wish.num_tokens, row.num_tokens, max_positions_, row.num_blocks * kv_spec_.block_size});
    const int32_t begin = NumTaken(wish.slot);
    const int32_t count = std::min(num_tokens - begin, room);
    if (count <= 0) continue;
    const bool drafts = wish.num_drafts > 0 && begin + count == row.num_tokens;
    layout_.AddChunk(*batch_, wish.slot, begin, count, drafts);
    if (drafts) drafting_.push_back(&wish);
    room -= count;
    MarkTaken(wish.slot, begin + count);
  }
  RunPass();
}

// False: every wish is fulfilled.
bool ModelDrafter::DraftNext() {
  layout_.Begin();
  size_t num_left = 0;
  for (size_t i = 0; i < drafting_.size(); ++i) {
    const Wish& wish = *drafting_[i];
    wish.drafts->push_back(guesses_[i]);
    const auto num_drafts = static_cast<int32_t>(wish.drafts->size());
    if (num_drafts >= wish.num_drafts) continue;
    batch_->SetDrafts(wish.slot, *wish.drafts);
    layout_.AddChunk(*batch_, wish.slot, batch_->row(wish.slot).num_tokens + num_drafts - 1, 1,
                     /*makes_logits=*/true);
    drafting_[num_left++] = &wish;
  }
  drafting_.resize(num_left);
  RunPass();
  return num_left > 0;
}

void ModelDrafter::RunPass() {
  if (layout_.num_tokens() == 0) return;
  inputs_.Begin({.num_tokens = layout_.num_tokens(),
                 .num_requests = layout_.num_requests(),
                 .num_logits_rows = layout_.num_logits_rows(),
                 .attention_work = plan_->WorkSize(layout_.num_tokens(), layout_.num_requests()),
                 .table_columns = layout_.max_blocks});
  inputs_.Fill(layout_, *batch_);
  FillPlan(layout_, inputs_, plan_.get());
  inputs_.Send();
  const StepInputs::Views& inputs = inputs_.device();
  model_->Forward(
      {.token_ids = inputs.token_ids, .plan = plan_.get(), .kv_cache = kv_cache_.get()});
  const int64_t num_rows = layout_.num_logits_rows(), chunk = logits_.view().rows();
  guesses_.resize(static_cast<size_t>(num_rows));
  for (int64_t first = 0; first < num_rows; first += chunk) {
    const int64_t count = std::min(chunk, num_rows - first);
    const Tensor logits = logits_.view().Rows(0, count);
    model_->Logits(logits, inputs.logits_rows.Rows(first, count));
    backend_->ParallelFor(count, 1, [&](int64_t begin, int64_t end) {
      const size_t lane = scratch_ == nullptr ? 0 : scratch_->Claim();
      for (int64_t i = begin; i < end; ++i) {
        const std::span<float> row(logits.Row<float>(i), static_cast<size_t>(logits.shape[1]));
        const auto row_idx = static_cast<size_t>(first + i);
        guesses_[row_idx] = Guess(row_idx, row, scratch_ == nullptr ? nullptr : (*scratch_)[lane]);
      }
      if (scratch_ != nullptr) scratch_->Release(lane);
    });
  }
}

// On a thread of the compute pool.
TokenId ModelDrafter::Guess(size_t row_idx, std::span<float> logits, SamplerScratch* scratch) {
  const auto likeliest = static_cast<TokenId>(FindMax(logits).argmax);
  if (scratch == nullptr || row_idx >= drafting_.size()) return likeliest;
  const Wish& wish = *drafting_[row_idx];
  const InputBatch::Row& row = batch_->row(wish.slot);
  SampleInput input;
  input.logits = logits;
  input.config = &sampling_[static_cast<size_t>(Index(wish.slot))];
  input.counts = &row.counts;
  input.output_ids = batch_->output_ids(wish.slot);
  input.position = row.num_tokens + static_cast<int64_t>(wish.drafts->size());
  const SampleResult drawn = SampleToken(input, scratch);
  return drawn.status.ok() ? drawn.token_id : likeliest;
}

std::vector<StepCost::Point> ModelDrafter::Measure() {
  const ExecutorLimits& limits = batch_->limits();
  const SystemClock clock;
  std::vector<StepCost::Point> points;
  for (const int32_t num_rows : kMeasuredRows) {
    if (num_rows > std::min(limits.max_num_batched_tokens, limits.max_num_seqs)) break;
    points.push_back({num_rows, std::numeric_limits<double>::infinity()});
    // The first of each size may touch memory that no pass has touched before.
    for (int i = 0; i < 2; ++i) {
      const double begin = clock.Monotonic();
      layout_.LayOutPadding(num_rows, 1, num_rows, limits.block_size);
      RunPass();
      points.back().seconds = std::min(points.back().seconds, clock.Monotonic() - begin);
    }
  }
  return points;
}

}  // namespace tandem
