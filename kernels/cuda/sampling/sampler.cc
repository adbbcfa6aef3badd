#include "kernels/cuda/sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/launch.h"
#include "kernels/op_checks.h"

namespace tandem {
namespace {

constexpr int64_t kStagingWords = int64_t{1} << 20;

template <class T>
constexpr int64_t WordsOf(int64_t count) {
  constexpr size_t kWordBytes = sizeof(int32_t);
  static_assert(sizeof(T) % kWordBytes == 0);
  return count * static_cast<int64_t>(sizeof(T) / kWordBytes);
}
static_assert(CudaResultWords(0) == WordsOf<SampledToken>(1) + WordsOf<TokenLogprob>(1));

template <class T>
T* DataOf(const OwnedTensor& tensor) {
  return static_cast<T*>(tensor.view().data);
}

template <class T>
void CopyAsync(T* to, const T* from, size_t count, cudaStream_t stream) {
  if (count == 0) return;
  CHECK_CUDA(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDefault, stream));
}

CudaSlotParams ParamsOf(const SamplingConfig& config, int64_t vocab_size) {
  CudaSlotParams params;
  params.sampling = config;
  if (config.top_k < 0 || config.top_k >= vocab_size) params.sampling.top_k = 0;
  params.num_stops = static_cast<int32_t>(config.min_tokens_mask.size());
  params.num_biased = static_cast<int32_t>(config.logit_bias.size());
  params.num_logprob_ids = static_cast<int32_t>(config.logprob_token_ids.size());
  params.num_words = static_cast<int32_t>(config.bad_words.size());
  params.has_allowed_mask = config.allowed_token_ids.empty() ? 0 : 1;
  return params;
}

void FillLists(const SamplingConfig& config, const CudaSlotLists& lists, int32_t* numbers) {
  std::ranges::copy(config.min_tokens_mask, numbers + lists.stops);
  for (size_t i = 0; i < config.logit_bias.size(); ++i) {
    const auto& [id, bias] = config.logit_bias[i];
    numbers[lists.biased + static_cast<int32_t>(i)] = id;
    numbers[lists.biases + static_cast<int32_t>(i)] = std::bit_cast<int32_t>(bias);
  }
  std::ranges::copy(config.logprob_token_ids, numbers + lists.logprob_ids);
  int32_t* word_end = numbers + lists.word_ends;
  int32_t* words = numbers + lists.words;
  int32_t* next = words;
  for (const std::vector<TokenId>& word : config.bad_words) {
    next = std::ranges::copy(word, next).out;
    *word_end++ = static_cast<int32_t>(next - words);
  }
}

}  // namespace

StatusOr<std::unique_ptr<DeviceSampler>> CudaSampler::Create(const DeviceSamplerLimits& limits,
                                                             cudaStream_t stream) {
  std::unique_ptr<CudaSampler> sampler(new CudaSampler(limits, stream));
  RETURN_IF_ERROR(sampler->Allocate());
  return std::unique_ptr<DeviceSampler>(std::move(sampler));
}

Status CudaSampler::Allocate() {
  // The sum of a row's weights fits 64 bits.
  CHECK(limits_.vocab_size > 0 && limits_.vocab_size < int64_t{1} << 21) << limits_.vocab_size;
  const int64_t slots = limits_.num_slots, vocab = limits_.vocab_size;
  const int64_t params_words = WordsOf<CudaSlotParams>(1);
  const auto numbers = static_cast<int64_t>(kMaxDeviceNumbers);
  const auto recent = static_cast<int64_t>(kMaxDeviceWordTokens);
  const auto allocate = [&](OwnedTensor* tensor, int64_t rows, int64_t columns) -> Status {
    const int64_t shape[] = {rows, columns};
    ASSIGN_OR_RETURN(*tensor, AllocateDevice(DType::kI32, shape, stream_));
    return OkStatus();
  };
  const auto make_event = [](cudaEvent_t* event) {
    return CudaStatus(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "making an event");
  };
  RETURN_IF_ERROR(allocate(&params_, slots, params_words));
  RETURN_IF_ERROR(allocate(&numbers_, slots, numbers));
  RETURN_IF_ERROR(allocate(&allowed_, slots, mask_words_));
  RETURN_IF_ERROR(allocate(&counts_, slots, vocab));
  RETURN_IF_ERROR(allocate(&recent_, slots, recent));
  RETURN_IF_ERROR(allocate(&slot_tokens_, 1, slots));
  RETURN_IF_ERROR(allocate(&processed_, limits_.max_logits_rows, vocab));
  RETURN_IF_ERROR(allocate(&token_ids_, 1, limits_.max_tokens));
  RETURN_IF_ERROR(allocate(&results_, limits_.max_rows, kCudaResultWords));
  const int64_t staging_words = std::max(
      kStagingWords, params_words + numbers + mask_words_ + recent + limits_.max_tokens + 32);
  ASSIGN_OR_RETURN(staging_, AllocatePinned(DType::kI32, {&staging_words, 1}));
  RETURN_IF_ERROR(make_event(&staged_));
  for (FetchedResults& fetched : fetched_) {
    const int64_t words = limits_.max_rows * kCudaResultWords;
    ASSIGN_OR_RETURN(fetched.memory, AllocatePinned(DType::kI32, {&words, 1}));
    RETURN_IF_ERROR(make_event(&fetched.done));
  }
  return OkStatus();
}

CudaSampler::~CudaSampler() {
  if (staged_ != nullptr) cudaEventDestroy(staged_);
  for (const FetchedResults& fetched : fetched_) {
    if (fetched.done != nullptr) cudaEventDestroy(fetched.done);
  }
}

// ---- admission ----

template <class T>
T* CudaSampler::Stage(size_t count) {
  constexpr int64_t kAlign = 4;  // words
  const int64_t words = (WordsOf<T>(static_cast<int64_t>(count)) + kAlign - 1) / kAlign * kAlign;
  if (staged_words_ + words > staging_.view().NumElements()) {
    CHECK_CUDA(cudaEventRecord(staged_, stream_));
    CHECK_CUDA(cudaEventSynchronize(staged_));
    staged_words_ = 0;
  }
  T* part = reinterpret_cast<T*>(DataOf<int32_t>(staging_) + staged_words_);
  staged_words_ += words;
  CHECK_LE(staged_words_, staging_.view().NumElements())
      << "an admission exceeds its staging memory";
  return part;
}

void CudaSampler::Admit(int32_t slot, const SamplingConfig& config,
                        std::span<const TokenId> token_ids, int32_t num_prompt_tokens) {
  CHECK(slot >= 0 && slot < limits_.num_slots) << slot;
  CHECK(FitsDeviceSampler(config)) << "slot " << slot;
  const CudaSlotParams params = ParamsOf(config, limits_.vocab_size);
  auto* staged = Stage<CudaSlotParams>(1);
  *staged = params;
  CopyAsync(DataOf<CudaSlotParams>(params_) + slot, staged, 1, stream_);
  CopyLists(slot, params, config);
  if (!config.bad_words.empty()) {
    CopyRecent(slot, token_ids.subspan(static_cast<size_t>(num_prompt_tokens)));
  }
  if (config.has_penalties()) CountTokens(slot, token_ids, num_prompt_tokens);
}

void CudaSampler::CopyLists(int32_t slot, const CudaSlotParams& params,
                            const SamplingConfig& config) {
  const size_t count = NumDeviceNumbers(config);
  auto* numbers = Stage<int32_t>(count);
  FillLists(config, ListsOf(params), numbers);
  CopyAsync(numbers_.view().Row<int32_t>(slot), numbers, count, stream_);
  if (config.allowed_token_ids.empty()) return;
  const auto words = static_cast<size_t>(mask_words_);
  auto* mask = Stage<uint32_t>(words);
  std::memset(mask, 0, words * sizeof(uint32_t));
  for (const TokenId id : config.allowed_token_ids) mask[id / 32] |= uint32_t{1} << id % 32;
  CopyAsync(DataOf<uint32_t>(allowed_) + slot * mask_words_, mask, words, stream_);
}

void CudaSampler::CopyRecent(int32_t slot, std::span<const TokenId> output_ids) {
  auto* recent = Stage<int32_t>(kMaxDeviceWordTokens);
  const size_t num_old = output_ids.size() - std::min(output_ids.size(), kMaxDeviceWordTokens);
  for (size_t i = num_old; i < output_ids.size(); ++i) {
    recent[i % kMaxDeviceWordTokens] = output_ids[i];
  }
  CopyAsync(recent_.view().Row<int32_t>(slot), recent, kMaxDeviceWordTokens, stream_);
}

void CudaSampler::CountTokens(int32_t slot, std::span<const TokenId> token_ids,
                              int32_t num_prompt_tokens) {
  int32_t* counts = counts_.view().Row<int32_t>(slot);
  const auto bytes = static_cast<size_t>(limits_.vocab_size) * sizeof(int32_t);
  CHECK_CUDA(cudaMemsetAsync(counts, 0, bytes, stream_));
  auto* staged = Stage<TokenId>(token_ids.size());
  std::ranges::copy(token_ids, staged);
  CopyAsync(DataOf<TokenId>(token_ids_), staged, token_ids.size(), stream_);
  LaunchCountTokens(counts, DataOf<TokenId>(token_ids_), num_prompt_tokens,
                    static_cast<int64_t>(token_ids.size()), stream_);
}

// ---- steps ----

void CudaSampler::Sample(const Tensor& logits, const Tensor& rows, const Tensor& masks,
                         int64_t first) {
  const int64_t count = logits.rows();
  CHECK(logits.rank == 2 && logits.shape[1] == limits_.vocab_size) << logits.shape[1];
  CHECK(rows.rank == 2 && rows.rows() == count && rows.row_stride == kSamplingRowWidth &&
        rows.dtype == DType::kI32)
      << rows.rows() << " rows of " << rows.row_stride << " for " << count;
  CHECK(masks.rank == 2 && masks.shape[1] == mask_words_ && masks.row_stride == mask_words_ &&
        masks.dtype == DType::kI32)
      << masks.row_stride << " words for " << limits_.vocab_size << " tokens";
  CHECK_LE(count, limits_.max_logits_rows);
  CHECK(first >= 0 && first + count <= limits_.max_rows) << first << "+" << count;
  CudaSampleArgs args;
  args.logits = logits.Data<float>();
  args.logits_stride = logits.row_stride;
  args.vocab_size = limits_.vocab_size;
  args.rows = static_cast<const SamplingRow*>(rows.data);
  args.params = DataOf<CudaSlotParams>(params_);
  args.numbers = DataOf<int32_t>(numbers_);
  args.allowed = DataOf<uint32_t>(allowed_);
  args.masks = static_cast<const uint32_t*>(masks.data);
  args.mask_words = mask_words_;
  args.counts = DataOf<int32_t>(counts_);
  args.recent = DataOf<int32_t>(recent_);
  args.processed = DataOf<float>(processed_);
  args.slot_tokens = DataOf<int32_t>(slot_tokens_);
  args.results = reinterpret_cast<SampledToken*>(results_.view().Row<int32_t>(first));
  args.num_rows = count;
  args.has_row_before = first > 0;
  LaunchSample(args, count, stream_);
}

void CudaSampler::FillSampledTokens(const Tensor& ids) {
  LaunchFillSampledTokens(ids.Data<int32_t>(), ids.rows(), DataOf<int32_t>(slot_tokens_), stream_);
}

void CudaSampler::StartFetch(int64_t count, int32_t max_logprobs) {
  CHECK(count >= 0 && count <= limits_.max_rows) << count;
  CHECK_LT(num_started_ - num_taken_, kMaxFetches);
  FetchedResults& fetched = fetched_[num_started_++ % kMaxFetches];
  fetched.words = max_logprobs < 0 ? WordsOf<SampledToken>(1) : CudaResultWords(max_logprobs);
  if (count > 0) {
    const auto width = static_cast<size_t>(fetched.words) * sizeof(int32_t);
    CHECK_CUDA(cudaMemcpy2DAsync(DataOf<int32_t>(fetched.memory), width, DataOf<int32_t>(results_),
                                 size_t{kCudaResultWords} * sizeof(int32_t), width,
                                 static_cast<size_t>(count), cudaMemcpyDefault, stream_));
  }
  CHECK_CUDA(cudaEventRecord(fetched.done, stream_));
}

void CudaSampler::TakeFetched() {
  CHECK_LT(num_taken_, num_started_);
  CHECK_CUDA(cudaEventSynchronize(fetched_[num_taken_++ % kMaxFetches].done));
}

const int32_t* CudaSampler::ResultOf(int64_t i) const {
  const FetchedResults& taken = fetched_[(num_taken_ - 1) % kMaxFetches];
  return DataOf<int32_t>(taken.memory) + i * taken.words;
}

const SampledToken& CudaSampler::sampled(int64_t i) const {
  return *reinterpret_cast<const SampledToken*>(ResultOf(i));
}

std::span<const TokenLogprob> CudaSampler::logprobs(int64_t i) const {
  return {reinterpret_cast<const TokenLogprob*>(ResultOf(i) + WordsOf<SampledToken>(1)),
          static_cast<size_t>(1 + sampled(i).num_logprobs)};
}

}  // namespace tandem
