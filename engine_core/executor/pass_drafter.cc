#include "engine_core/executor/pass_drafter.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/clock.h"
#include "engine_core/executor/model_sizes.h"
#include "engine_core/sampling/row_math.h"

namespace tandem {

PassDrafter::PassDrafter(Backend* backend, const DraftModel& draft, int32_t shift,
                         KvFormat kv_format, InputBatch* batch)
    : backend_(backend),
      batch_(batch),
      kv_spec_(KvSpecOf(draft.config, batch->limits().block_size, 0, kv_format)),
      shift_(shift),
      attention_shape_(AttentionShapeOf(draft.config)),
      max_positions_(draft.max_positions) {
  const auto num_slots = static_cast<size_t>(batch->limits().max_num_seqs);
  if (draft.draws) {
    scratch_ = std::make_unique<ScratchPool>(static_cast<size_t>(backend->num_threads()),
                                             static_cast<size_t>(batch->limits().vocab_size));
    sampling_.resize(num_slots);
  }
  CHECK(backend->device().memory_is_host()) << "drafts are not built for devices";
  CHECK_EQ(draft.config.vocab_size, batch->limits().vocab_size);
}

Status PassDrafter::Allocate() {
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
  parent_rows_.reserve(static_cast<size_t>(seqs));
  return OkStatus();
}

Status PassDrafter::AllocateKvCache(int32_t num_blocks) {
  kv_cache_.reset();
  kv_spec_.num_blocks = num_blocks;
  ASSIGN_OR_RETURN(kv_cache_, backend_->AllocateKvCache(kv_spec_));
  return OkStatus();
}

void PassDrafter::AppendBlocks(const ScheduledRequest& request,
                               std::span<const BlockId> /*block_ids*/) {
  if (request.kind == ScheduledKind::kRunning || scratch_ == nullptr) return;
  SamplingConfig& sampling = sampling_[static_cast<size_t>(Index(request.slot))];
  sampling = batch_->row(request.slot).sampling;
  sampling.num_logprobs = -1;
}

int32_t PassDrafter::NumPositions(RequestSlot slot) const {
  return std::min(max_positions_, batch_->row(slot).num_blocks * kv_spec_.block_size);
}

// The last draft is not an input, and the first one follows from the last token.
int32_t PassDrafter::RoomFor(RequestSlot slot) const {
  const InputBatch::Row& row = batch_->row(slot);
  if (row.embeddings != nullptr) return 0;  // they are the target's
  return std::max(0, NumPositions(slot) + shift_ - row.num_tokens + 1);
}

void PassDrafter::Propose(std::span<const Wish> wishes) {
  drafting_.clear();
  layout_.Begin();
  is_first_pass_ = true;
  TakeIn(wishes);
  RunPass();
  is_first_pass_ = false;
  while (DraftNext()) {
  }
  TakeDrafts(wishes);
}

void PassDrafter::AddChunk(const Wish& wish, int32_t begin, int32_t count) {
  const bool drafts =
      wish.num_drafts > 0 && begin + count + shift_ == batch_->row(wish.slot).num_tokens;
  layout_.AddChunk(*batch_, wish.slot, begin, count, drafts);
  if (drafts) drafting_.push_back(&wish);
}

// False: every wish is fulfilled.
bool PassDrafter::DraftNext() {
  parent_rows_.clear();
  size_t num_left = 0;
  for (size_t i = 0; i < drafting_.size(); ++i) {
    const Wish& wish = *drafting_[i];
    wish.drafts->push_back(guesses_[i]);
    if (static_cast<int32_t>(wish.drafts->size()) >= wish.num_drafts) continue;
    parent_rows_.push_back(layout_.logits_rows[i].token_row);
    drafting_[num_left++] = &wish;
  }
  drafting_.resize(num_left);
  layout_.Begin();
  for (const Wish* wish : drafting_) {
    const auto num_drafts = static_cast<int32_t>(wish->drafts->size());
    batch_->SetDrafts(wish->slot, *wish->drafts);
    layout_.AddChunk(*batch_, wish->slot,
                     batch_->row(wish->slot).num_tokens + num_drafts - 1 - shift_, 1,
                     /*makes_logits=*/true);
  }
  RunPass();
  return num_left > 0;
}

void PassDrafter::RunPass() {
  if (layout_.num_tokens() == 0) return;
  inputs_.Begin({.num_tokens = layout_.num_tokens(),
                 .num_requests = layout_.num_requests(),
                 .num_logits_rows = layout_.num_logits_rows(),
                 .attention_work = plan_->WorkSize(layout_.num_tokens(), layout_.num_requests()),
                 .table_columns = layout_.max_blocks});
  inputs_.Fill(layout_, *batch_);
  if (shift_ > 0) ShiftTokens();
  FillPlan(layout_, inputs_, plan_.get());
  inputs_.Send();
  const StepInputs::Views& inputs = inputs_.device();
  Forward(inputs);
  const int64_t num_rows = layout_.num_logits_rows(), chunk = logits_.view().rows();
  guesses_.resize(static_cast<size_t>(num_rows));
  for (int64_t first = 0; first < num_rows; first += chunk) {
    const int64_t count = std::min(chunk, num_rows - first);
    const Tensor logits = logits_.view().Rows(0, count);
    Logits(logits, inputs.logits_rows.Rows(first, count));
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

void PassDrafter::ShiftTokens() {
  auto* token_ids = inputs_.host().token_ids.Data<int32_t>();
  for (const ScheduledRequest& request : layout_.requests) {
    const int32_t first = request.num_computed_tokens + shift_;
    const std::span<const TokenId> tokens = batch_->input_ids(request.slot);
    const auto shifted = tokens.subspan(static_cast<size_t>(first),
                                        static_cast<size_t>(request.num_scheduled_tokens));
    token_ids = std::ranges::copy(shifted, token_ids).out;
  }
}

// On a thread of the compute pool.
TokenId PassDrafter::Guess(size_t row_idx, std::span<float> logits, SamplerScratch* scratch) {
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

std::vector<StepCost::Point> PassDrafter::Measure() {
  const ExecutorLimits& limits = batch_->limits();
  const SystemClock clock;
  std::vector<StepCost::Point> points;
  is_first_pass_ = true;
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
