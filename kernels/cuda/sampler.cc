#include "kernels/cuda/sampler.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/launch.h"
#include "kernels/op_checks.h"

namespace tandem {
namespace {

constexpr int64_t kLogprobColumns = 1 + kMaxDeviceLogprobs;

template <class T>
constexpr int64_t WordsOf(int64_t count) {
  static_assert(sizeof(T) % sizeof(int32_t) == 0);
  return count * static_cast<int64_t>(sizeof(T) / sizeof(int32_t));
}

template <class T>
T* DataOf(const OwnedTensor& tensor) {
  return static_cast<T*>(tensor.view().data);
}

template <class T>
void CopyAsync(T* to, const T* from, size_t count, cudaStream_t stream) {
  if (count == 0) return;
  CHECK_CUDA(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDefault, stream));
}

// Hands out one piece of memory part by part.
class Parts {
 public:
  explicit Parts(const OwnedTensor& memory)
      : next_(DataOf<int32_t>(memory)), end_(next_ + memory.view().NumElements()) {}
  template <class T>
  T* Take(size_t count) {
    T* part = reinterpret_cast<T*>(next_);
    next_ += WordsOf<T>(static_cast<int64_t>(count));
    CHECK(next_ <= end_) << "an admission outgrew its staging memory";
    return part;
  }

 private:
  int32_t* next_;
  int32_t* end_;
};

CudaSlotParams ParamsOf(const DeviceAdmission& admission) {
  CudaSlotParams params;
  params.sampling = admission.sampling;
  params.num_stops = static_cast<int32_t>(admission.min_tokens_mask.size());
  params.num_banned = static_cast<int32_t>(admission.banned_token_ids.size());
  params.num_biased = static_cast<int32_t>(admission.logit_bias.size());
  params.has_allowed_mask = admission.allowed_token_ids.empty() ? 0 : 1;
  params.has_penalties = admission.has_penalties ? 1 : 0;
  return params;
}

size_t FillEdits(const DeviceAdmission& admission, CudaLogitEdit* edits) {
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  CudaLogitEdit* next = edits;
  for (const TokenId id : admission.min_tokens_mask) *next++ = {id, kMasked};
  for (const TokenId id : admission.banned_token_ids) *next++ = {id, kMasked};
  for (const auto& [id, bias] : admission.logit_bias) *next++ = {id, bias};
  return static_cast<size_t>(next - edits);
}

}  // namespace

StatusOr<std::unique_ptr<DeviceSampler>> CudaSampler::Create(const DeviceSamplerLimits& limits,
                                                             cudaStream_t stream) {
  std::unique_ptr<CudaSampler> sampler(new CudaSampler(limits, stream));
  RETURN_IF_ERROR(sampler->Allocate());
  return std::unique_ptr<DeviceSampler>(std::move(sampler));
}

Status CudaSampler::Allocate() {
  // A sum of as many weights fits 64 bits.
  CHECK(limits_.vocab_size > 0 && limits_.vocab_size < int64_t{1} << 21) << limits_.vocab_size;
  const int64_t slots = limits_.num_slots, vocab = limits_.vocab_size;
  const int64_t params_words = WordsOf<CudaSlotParams>(1);
  const int64_t edits_words = WordsOf<CudaLogitEdit>(kMaxDeviceEdits);
  const int64_t row_words = WordsOf<DrawRow>(slots);
  const int64_t result_words = WordsOf<DrawnToken>(slots) + 2 * slots * kLogprobColumns;
  const auto allocate = [&](OwnedTensor* tensor, int64_t rows, int64_t columns) -> Status {
    const int64_t shape[] = {rows, columns};
    ASSIGN_OR_RETURN(*tensor, AllocateDevice(DType::kI32, shape, stream_));
    return OkStatus();
  };
  const auto pin = [&](OwnedTensor* tensor, int64_t words) -> Status {
    ASSIGN_OR_RETURN(*tensor, AllocatePinned(DType::kI32, {&words, 1}));
    return OkStatus();
  };
  RETURN_IF_ERROR(allocate(&params_, slots, params_words));
  RETURN_IF_ERROR(allocate(&edits_, slots, edits_words));
  RETURN_IF_ERROR(allocate(&allowed_, slots, mask_words_));
  RETURN_IF_ERROR(allocate(&counts_, slots, vocab));
  RETURN_IF_ERROR(allocate(&processed_, limits_.max_logits_rows, vocab));
  RETURN_IF_ERROR(allocate(&rows_, 1, row_words));
  RETURN_IF_ERROR(allocate(&token_ids_, 1, limits_.max_tokens));
  RETURN_IF_ERROR(allocate(&results_, 1, result_words));
  ASSIGN_OR_RETURN(slot_tokens_, AllocateDevice(DType::kI32, {&slots, 1}, stream_));
  RETURN_IF_ERROR(
      pin(&host_admission_, params_words + edits_words + mask_words_ + limits_.max_tokens));
  const auto make_event = [](cudaEvent_t* event) {
    return CudaStatus(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "making an event");
  };
  RETURN_IF_ERROR(make_event(&admitted_));
  for (HostStep& step : steps_) {
    RETURN_IF_ERROR(pin(&step.rows, row_words));
    RETURN_IF_ERROR(pin(&step.results, result_words));
    RETURN_IF_ERROR(make_event(&step.fetched));
  }
  slot_logprobs_ = std::make_unique<int32_t[]>(static_cast<size_t>(slots));
  return OkStatus();
}

CudaSampler::~CudaSampler() {
  if (admitted_ != nullptr) cudaEventDestroy(admitted_);
  for (const HostStep& step : steps_) {
    if (step.fetched != nullptr) cudaEventDestroy(step.fetched);
  }
}

void CudaSampler::Admit(int32_t slot, const DeviceAdmission& admission) {
  CHECK(slot >= 0 && slot < limits_.num_slots) << slot;
  CHECK_LE(admission.min_tokens_mask.size() + admission.banned_token_ids.size() +
               admission.logit_bias.size(),
           kMaxDeviceEdits);
  CHECK_LE(admission.sampling.num_logprobs, kMaxDeviceLogprobs);
  slot_logprobs_[static_cast<size_t>(slot)] = admission.sampling.num_logprobs;
  CHECK_CUDA(cudaEventSynchronize(admitted_));
  Parts staging(host_admission_);

  auto* params = staging.Take<CudaSlotParams>(1);
  *params = ParamsOf(admission);
  CopyAsync(DataOf<CudaSlotParams>(params_) + slot, params, 1, stream_);

  auto* edits = staging.Take<CudaLogitEdit>(kMaxDeviceEdits);
  CopyAsync(DataOf<CudaLogitEdit>(edits_) + slot * static_cast<int64_t>(kMaxDeviceEdits), edits,
            FillEdits(admission, edits), stream_);

  if (!admission.allowed_token_ids.empty()) {
    const auto words = static_cast<size_t>(mask_words_);
    auto* mask = staging.Take<uint32_t>(words);
    std::memset(mask, 0, words * sizeof(uint32_t));
    for (const TokenId id : admission.allowed_token_ids) mask[id / 32] |= uint32_t{1} << id % 32;
    CopyAsync(DataOf<uint32_t>(allowed_) + slot * mask_words_, mask, words, stream_);
  }
  if (admission.has_penalties) {
    int32_t* counts = counts_.view().Row<int32_t>(slot);
    CHECK_CUDA(cudaMemsetAsync(counts, 0, static_cast<size_t>(limits_.vocab_size) * sizeof(int32_t),
                               stream_));
    const size_t num_tokens = admission.token_ids.size();
    auto* token_ids = staging.Take<TokenId>(num_tokens);
    std::copy(admission.token_ids.begin(), admission.token_ids.end(), token_ids);
    CopyAsync(DataOf<TokenId>(token_ids_), token_ids, num_tokens, stream_);
    LaunchCountTokens(counts, DataOf<TokenId>(token_ids_), admission.num_prompt_tokens,
                      static_cast<int64_t>(num_tokens), stream_);
  }
  CHECK_CUDA(cudaEventRecord(admitted_, stream_));
}

void CudaSampler::Draw(const Tensor& logits, std::span<const DrawRow> rows, int64_t first) {
  const auto count = static_cast<int64_t>(rows.size());
  CHECK(logits.rank == 2 && logits.shape[1] == limits_.vocab_size) << logits.shape[1];
  CHECK_LE(count, limits_.max_logits_rows);
  CHECK(first >= 0 && first + count <= limits_.num_slots) << first << "+" << count;
  CHECK_LT(num_on_their_way_, steps_.size());
  HostStep& step = steps_[drawing_];
  if (first == 0) step.has_logprobs = false;
  auto* host_rows = DataOf<DrawRow>(step.rows) + first;
  for (size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i].slot >= 0 && rows[i].slot < limits_.num_slots && rows[i].logits_row >= 0 &&
          rows[i].logits_row < logits.rows())
        << "slot " << rows[i].slot << ", row " << rows[i].logits_row;
    host_rows[i] = rows[i];
    step.has_logprobs |= slot_logprobs_[static_cast<size_t>(rows[i].slot)] >= 0;
  }
  CudaDrawArgs args;
  args.logits = logits.Data<float>();
  args.logits_stride = logits.row_stride;
  args.vocab_size = limits_.vocab_size;
  args.rows = DataOf<DrawRow>(rows_) + first;
  args.params = DataOf<CudaSlotParams>(params_);
  args.edits = DataOf<CudaLogitEdit>(edits_);
  args.allowed = DataOf<uint32_t>(allowed_);
  args.mask_words = mask_words_;
  args.counts = DataOf<int32_t>(counts_);
  args.processed = DataOf<float>(processed_);
  args.slot_tokens = DataOf<int32_t>(slot_tokens_);
  args.drawn = DrawnOf(results_) + first;
  args.logprob_ids = LogprobIdsOf(results_) + first * kLogprobColumns;
  args.logprobs = LogprobsOf(results_) + first * kLogprobColumns;
  CopyAsync(DataOf<DrawRow>(rows_) + first, host_rows, rows.size(), stream_);
  LaunchDraw(args, count, stream_);
}

void CudaSampler::StartFetch(int64_t count) {
  CHECK(count > 0 && count <= limits_.num_slots) << count;
  HostStep& step = steps_[drawing_];
  const int64_t words =
      step.has_logprobs ? results_.view().NumElements() : WordsOf<DrawnToken>(count);
  CopyAsync(DataOf<int32_t>(step.results), DataOf<int32_t>(results_), static_cast<size_t>(words),
            stream_);
  CHECK_CUDA(cudaEventRecord(step.fetched, stream_));
  drawing_ = (drawing_ + 1) % steps_.size();
  ++num_on_their_way_;
}

void CudaSampler::FinishFetch() {
  CHECK_GT(num_on_their_way_, 0u);
  fetched_ = (drawing_ + steps_.size() - num_on_their_way_) % steps_.size();
  --num_on_their_way_;
  CHECK_CUDA(cudaEventSynchronize(steps_[fetched_].fetched));
}

void CudaSampler::PutTokens(const Tensor& token_ids, const Tensor& drawn_by) {
  CHECK_EQ(token_ids.rows(), drawn_by.rows());
  LaunchPutTokens(token_ids.Data<int32_t>(), drawn_by.Data<int32_t>(), token_ids.rows(),
                  DataOf<int32_t>(slot_tokens_), stream_);
}

DrawnToken* CudaSampler::DrawnOf(const OwnedTensor& results) const {
  return DataOf<DrawnToken>(results);
}
int32_t* CudaSampler::LogprobIdsOf(const OwnedTensor& results) const {
  return DataOf<int32_t>(results) + WordsOf<DrawnToken>(limits_.num_slots);
}
float* CudaSampler::LogprobsOf(const OwnedTensor& results) const {
  return reinterpret_cast<float*>(LogprobIdsOf(results) + limits_.num_slots * kLogprobColumns);
}

const DrawnToken& CudaSampler::drawn(int64_t i) const {
  return DrawnOf(steps_[fetched_].results)[i];
}

std::span<const TokenId> CudaSampler::logprob_token_ids(int64_t i) const {
  return {LogprobIdsOf(steps_[fetched_].results) + i * kLogprobColumns,
          static_cast<size_t>(1 + drawn(i).num_logprobs)};
}

std::span<const float> CudaSampler::logprobs(int64_t i) const {
  return {LogprobsOf(steps_[fetched_].results) + i * kLogprobColumns,
          static_cast<size_t>(1 + drawn(i).num_logprobs)};
}

}  // namespace tandem
