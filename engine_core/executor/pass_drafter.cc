#include "engine_core/executor/pass_drafter.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/clock.h"
#include "engine_core/executor/model_sizes.h"
#include "engine_core/sampling/row_math.h"

namespace tandem {
namespace {

// The first numbers of a vector, as a row.
Tensor RowOf(const Tensor& numbers, int64_t count) {
  return Tensor(numbers.data, numbers.dtype, {1, count});
}

}  // namespace

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
  Device& device = backend_->device();
  ASSIGN_OR_RETURN(logits_,
                   SharedTensor::Create(&device, DType::kF32, {num_rows, limits.vocab_size}));
  if (!device.memory_is_host() && scratch_ == nullptr) {
    const int64_t passes = limits.drafts.num_speculative_tokens;
    ASSIGN_OR_RETURN(guess_ids_, device.Allocate(DType::kI32, {1 + seqs}));
    ASSIGN_OR_RETURN(guess_staging_, device.AllocateStaging(DType::kI32, {passes, 1 + seqs}));
  }
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
  num_passes_ = 0;
  TakeIn(wishes);
  RunPass();
  is_first_pass_ = false;
  while (DraftNext()) {
  }
  TakeGuesses(wishes);
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
  const int64_t num_rows = layout_.num_logits_rows();
  guesses_.resize(static_cast<size_t>(num_rows));
  const bool repeats = graphs_ && !is_first_pass_ && repeats_ops();
  const DecodeGraphs::Graph* graph = repeats ? graphs_->Find(layout_) : nullptr;
  if (graph != nullptr) layout_.PadTo(graph->size);
  SendInputs();
  if (graph != nullptr) {
    graphs_->Replay(*graph);
  } else {
    RunOps();
  }
  if (guess_ids_.view().empty() || num_rows == 0) return;
  backend_->device().StartCopyOut(
      guess_staging_.view().Rows(num_passes_++, 1).Columns(0, 1 + num_rows),
      RowOf(guess_ids_.view(), 1 + num_rows));
  for (int32_t i = 0; i < static_cast<int32_t>(num_rows); ++i) {
    guesses_[static_cast<size_t>(i)] = ~(i + 1);
  }
}

void PassDrafter::SendInputs() {
  inputs_.Begin({.num_tokens = layout_.num_tokens(),
                 .num_requests = layout_.num_requests(),
                 .num_logits_rows = layout_.num_logits_rows(),
                 .attention_work = plan_->WorkSize(layout_.num_tokens(), layout_.num_requests()),
                 .table_columns = layout_.max_blocks});
  inputs_.Fill(layout_, *batch_);
  if (shift_ > 0) ShiftTokens();
  FillPlan(layout_.lengths(), inputs_, plan_.get());
  inputs_.Send();
  SendRows(layout_.num_tokens());
}

void PassDrafter::RunOps() {
  const StepInputs::Views& inputs = inputs_.device();
  const bool finds_on_device = !guess_ids_.view().empty();
  if (finds_on_device && !is_first_pass_) {
    backend_->ops().FillIds(inputs.token_ids, guess_ids_);
  }
  Forward(inputs);
  const int64_t num_rows = layout_.num_logits_rows(), chunk = logits_.device().rows();
  for (int64_t first = 0; first < num_rows; first += chunk) {
    const int64_t count = std::min(chunk, num_rows - first);
    const Tensor logits = logits_.device().Rows(0, count);
    Logits(logits, first, inputs.logits_rows.Rows(first, count));
    if (finds_on_device) {
      backend_->ops().ArgMax(guess_ids_.view().Rows(1 + first, count), logits);
    } else {
      logits_.Fetch(count);
      DrawOnHost(first, count);
    }
  }
}

void PassDrafter::DrawOnHost(int64_t first, int64_t count) {
  const Tensor& logits = logits_.host();
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

void PassDrafter::TakeGuesses(std::span<const Wish> wishes) {
  if (num_passes_ == 0) return;
  backend_->device().WaitFor(backend_->device().SetMark());
  for (const Wish& wish : wishes) {
    if (wish.drafts == nullptr) continue;
    for (size_t i = 0; i < wish.drafts->size(); ++i) {
      TokenId& draft = (*wish.drafts)[i];
      draft = guess_staging_.view().Row<int32_t>(static_cast<int64_t>(i))[~draft];
    }
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

// ---- at start ----

void PassDrafter::SendPadding(int64_t num_tokens, int64_t num_logits_rows) {
  layout_.LayOutPadding(num_tokens, 1, num_logits_rows, batch_->limits().block_size);
  guesses_.resize(static_cast<size_t>(num_logits_rows));
  drafting_.clear();
  parent_rows_.clear();
  SendInputs();
}

void PassDrafter::RunLargest() {
  const ExecutorLimits& limits = batch_->limits();
  is_first_pass_ = true;
  const int64_t seqs = limits.max_num_seqs, most = limits.max_num_batched_tokens;
  const int64_t tokens_per_request = std::min((most + seqs - 1) / seqs, int64_t{max_positions_});
  layout_.LayOutPadding(std::min(most, seqs * tokens_per_request), tokens_per_request,
                        std::min(seqs, most), limits.block_size);
  guesses_.resize(static_cast<size_t>(layout_.num_logits_rows()));
  drafting_.clear();
  SendInputs();
  RunOps();
}

Status PassDrafter::CaptureGraphs(std::span<const int64_t> sizes) {
  if (guess_ids_.view().empty() || !repeats_ops()) return OkStatus();
  is_first_pass_ = false;
  graphs_.emplace(&backend_->device(), sizes, logits_.device().rows());
  return graphs_->Capture([this](int64_t size) { SendPadding(size, size); }, [this] { RunOps(); });
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
      SendPadding(num_rows, num_rows);
      RunOps();
      backend_->device().WaitFor(backend_->device().SetMark());
      points.back().seconds = std::min(points.back().seconds, clock.Monotonic() - begin);
    }
  }
  return points;
}

}  // namespace tandem
