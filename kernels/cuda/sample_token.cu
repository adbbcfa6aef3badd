// One token from one row of logits: one block per row. The steps and their order are those of
// engine_core/sampling/sampler.h; kernels/device_sampler.h tells in what bits may differ.
// A row is read once for its largest logit and once more for the tokens of a weight worth looking
// at, which as a rule are enough for every limit; else the row itself is searched.

#include "common/random.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sampler.h"
#include "kernels/cuda/select.cuh"

namespace tandem {
namespace {

constexpr int32_t kInPrompt = 1;
constexpr int32_t kOneOutput = 2;
// Of the likeliest one's weight; 99.9% of nuclei lie above, and a thousand tokens at most.
constexpr float kWorthwhile = 0x1p-12f;

// Weights of a softmax at some temperature, and the bins that FindCut sorts logits into.
struct Softmax {
  float max;
  float temperature;

  __device__ float WeightOf(float x) const { return ExpNonPositive((x - max) / temperature); }
  __device__ int BinOf(float x) const {
    constexpr float kBinsPerUnit = kNumBins / 88.0f;  // below exp(-88) there is no weight
    return static_cast<int>(fminf((max - x) / temperature * kBinsPerUnit, kNumBins - 1));
  }
};

__device__ bool NeedsProcessing(const CudaSlotParams& params, const DrawRow& row) {
  return params.has_allowed_mask != 0 || params.num_banned > 0 || params.num_biased > 0 ||
         params.has_penalties != 0 ||
         (params.num_stops > 0 && row.num_outputs < params.sampling.min_tokens);
}

// Allowed ids, bans, min tokens, bias, penalties: from the model's logits into x.
__device__ void ProcessLogits(const CudaDrawArgs& args, const CudaSlotParams& params,
                              const DrawRow& row, const float* logits, float* x) {
  const uint32_t* allowed =
      params.has_allowed_mask != 0 ? args.allowed + row.slot * args.mask_words : nullptr;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < args.vocab_size; i += kSelectThreads) {
    const bool may = allowed == nullptr || (allowed[i / 32] >> i % 32 & 1) != 0;
    x[i] = may ? logits[i] : -INFINITY;
  }
  __syncthreads();
  const CudaLogitEdit* edits = args.edits + row.slot * static_cast<int64_t>(kMaxDeviceEdits);
  const int bans_end = params.num_stops + params.num_banned;
  const int bans_begin = row.num_outputs < params.sampling.min_tokens ? 0 : params.num_stops;
  for (int i = bans_begin + static_cast<int>(threadIdx.x); i < bans_end; i += kSelectThreads) {
    x[edits[i].token_id] = -INFINITY;
  }
  __syncthreads();
  const int edits_end = bans_end + params.num_biased;
  for (int i = bans_end + static_cast<int>(threadIdx.x); i < edits_end; i += kSelectThreads) {
    x[edits[i].token_id] += edits[i].bias;
  }
  __syncthreads();
  if (params.has_penalties != 0) {
    const DeviceSampling& sampling = params.sampling;
    const int32_t* counts = args.counts + row.slot * args.vocab_size;
    for (int64_t i = threadIdx.x; i < args.vocab_size; i += kSelectThreads) {
      const int32_t count = counts[i];
      if (count == 0) continue;
      float value = x[i];
      value = value > 0 ? value / sampling.repetition_penalty : value * sampling.repetition_penalty;
      const int32_t outputs = count / kOneOutput;
      if (outputs > 0) {
        value -=
            sampling.frequency_penalty * static_cast<float>(outputs) + sampling.presence_penalty;
      }
      x[i] = value;
    }
    __syncthreads();
  }
}

// Tokens that top_k and top_p keep: of logits above `least`, and of those equal to it the places up
// to `last_equal` of the line.
struct Kept {
  float least;
  int64_t last_equal;

  __device__ bool Has(float x, int64_t idx) const {
    return x > least || (x == least && idx <= last_equal);
  }
};

__device__ int32_t DrawFrom(const Line& line, const Softmax& softmax,
                            const DeviceSampling& sampling, Mass nucleus_of, double uniform,
                            SelectMemory* memory) {
  const auto bin_of = [&](float x) { return softmax.BinOf(x); };
  float least_of_top_k = -INFINITY;
  const auto weight_of = [&](float x) {
    const float weight = softmax.WeightOf(x);
    return weight >= sampling.min_p && x >= least_of_top_k ? weight : 0.0f;
  };
  if (sampling.top_k > 0) {
    const auto one_of = [&](float x) { return Mass{weight_of(x) > 0 ? 1u : 0u}; };
    const auto wanted = [&](Mass) { return static_cast<Mass>(sampling.top_k); };
    least_of_top_k = FindCut(line, bin_of, one_of, wanted, memory).x;
  }
  Kept kept = {-INFINITY, line.size};
  if (sampling.top_p < 1) {
    const auto mass_of = [&](float x) { return MassOf(weight_of(x)); };
    const auto wanted_of = [&](Mass total) {
      const Mass whole = nucleus_of > 0 ? nucleus_of : total;
      const Mass wanted =
          static_cast<Mass>(ceil(double{sampling.top_p} * static_cast<double>(whole)));
      return std::min(std::max(wanted, Mass{1}), total);
    };
    const Cut cut = FindCut(line, bin_of, mass_of, wanted_of, memory);
    const Mass each = mass_of(cut.x);
    const Mass num_equal = (wanted_of(cut.total) - cut.before + each - 1) / each;
    const auto is_equal = [&](int64_t i) { return Mass{line.x[i] == cut.x ? 1u : 0u}; };
    kept = {cut.x, FindInOrder(
                       line.size, is_equal, [=](Mass) { return num_equal; }, memory)
                       .idx};
  }
  const auto mass_at = [&](int64_t i) {
    return kept.Has(line.x[i], i) ? MassOf(weight_of(line.x[i])) : Mass{0};
  };
  // The running sum has to exceed this share of the total.
  const auto drawn = [=](Mass total) {
    return static_cast<Mass>(uniform * static_cast<double>(total)) + 1;
  };
  const int64_t idx = FindInOrder(line.size, mass_at, drawn, memory).idx;
  return line.ids == nullptr ? static_cast<int32_t>(idx) : line.ids[idx];
}

__device__ int32_t DrawOne(const float* x, int64_t size, float max, const DeviceSampling& sampling,
                           int32_t position, SelectMemory* memory) {
  const Softmax softmax = {max, sampling.temperature};
  const double uniform = UniformAt(sampling.seed, static_cast<uint64_t>(position));
  const bool has_top_k = sampling.top_k > 0, has_top_p = sampling.top_p < 1;
  const bool has_min_p = sampling.min_p > 0;
  const Line row = {x, size, nullptr};
  if (!has_top_k && !has_top_p && !has_min_p) {
    return DrawFrom(row, softmax, sampling, 0, uniform, memory);
  }
  const bool asks_no_more = has_min_p && (!has_top_k || sampling.min_p >= kWorthwhile);
  const float least = asks_no_more ? sampling.min_p : kWorthwhile;
  const auto weight_of = [&](float value) { return softmax.WeightOf(value); };
  const Gathered gathered = GatherCandidates(x, size, weight_of, least, memory);
  // top_p is a share of what min_p and top_k leave. Without these that is the whole row.
  const Mass nucleus_of = has_top_k || has_min_p ? 0 : gathered.total_mass;
  bool are_enough = asks_no_more;
  if (!are_enough) {
    are_enough = has_top_k ? gathered.count >= sampling.top_k
                           : static_cast<double>(gathered.mass) >=
                                 double{sampling.top_p} * static_cast<double>(nucleus_of);
  }
  const Line candidates = {memory->candidates, kMaxCandidates, memory->candidate_ids};
  const bool suffice = are_enough && gathered.has_all;
  return DrawFrom(suffice ? candidates : row, softmax, sampling, nucleus_of, uniform, memory);
}

// The drawn token's logprob and rank, and the top tokens, the likely ones and lower ids first.
__device__ int32_t TellLogprobs(const float* logits, int64_t size, float max, int32_t token,
                                int32_t num_logprobs, int32_t* ids, float* logprobs,
                                SelectMemory* memory) {
  __shared__ Best top[kMaxDeviceLogprobs];
  __shared__ int num_top;
  const Softmax softmax = {max, 1};
  const auto weight_of = [&](float x) { return softmax.WeightOf(x); };
  const Gathered gathered = GatherCandidates(logits, size, weight_of, kWorthwhile, memory);
  const double log_sum =
      static_cast<double>(max) + log(static_cast<double>(gathered.total_mass) * 0x1p-43);
  if (num_logprobs > 0) {
    const Line candidates = {memory->candidates, kMaxCandidates, memory->candidate_ids};
    const Line row = {logits, size, nullptr};
    const Line line = gathered.has_all && gathered.count >= num_logprobs ? candidates : row;
    const auto bin_of = [&](float x) { return softmax.BinOf(x); };
    const auto one_of = [](float x) { return Mass{x > -INFINITY ? 1u : 0u}; };
    const auto wanted = [=](Mass) { return static_cast<Mass>(num_logprobs); };
    const Cut cut = FindCut(line, bin_of, one_of, wanted, memory);
    const auto is_equal = [&](int64_t i) { return Mass{line.x[i] == cut.x ? 1u : 0u}; };
    const auto left = [&](Mass) { return static_cast<Mass>(num_logprobs) - cut.before; };
    const Kept kept = {cut.x, FindInOrder(line.size, is_equal, left, memory).idx};
    if (threadIdx.x == 0) num_top = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < line.size; i += kSelectThreads) {
      if (!kept.Has(line.x[i], i)) continue;
      const int32_t id = line.ids == nullptr ? static_cast<int32_t>(i) : line.ids[i];
      top[atomicAdd(&num_top, 1)] = {line.x[i], id};
    }
    __syncthreads();
    if (threadIdx.x < static_cast<unsigned>(num_logprobs)) {
      const Best own = top[threadIdx.x];
      int place = 1;
      for (int i = 0; i < num_logprobs; ++i) {
        const bool is_better =
            top[i].value > own.value || (top[i].value == own.value && top[i].idx < own.idx);
        place += is_better ? 1 : 0;
      }
      ids[place] = own.idx;
      logprobs[place] = static_cast<float>(own.value - log_sum);
    }
  }
  if (threadIdx.x == 0) {
    ids[0] = token;
    logprobs[0] = static_cast<float>(logits[token] - log_sum);
  }
  return CountAtLeast(logits, size, logits[token], memory);
}

__global__ void __launch_bounds__(kSelectThreads) DrawKernel(CudaDrawArgs args) {
  __shared__ SelectMemory memory;
  const DrawRow row = args.rows[blockIdx.x];
  const CudaSlotParams params = args.params[row.slot];
  const DeviceSampling& sampling = params.sampling;
  const float* logits = args.logits + row.logits_row * args.logits_stride;
  const RowBest raw = FindBest(logits, args.vocab_size, &memory);
  int32_t token = -1, rank = 0, num_logprobs = -1;
  if (raw.num_bad == 0) {
    const float* x = logits;
    Best best = raw.best;
    if (NeedsProcessing(params, row)) {
      float* processed = args.processed + blockIdx.x * args.vocab_size;
      ProcessLogits(args, params, row, logits, processed);
      x = processed;
      best = FindBest(x, args.vocab_size, &memory).best;
    }
    if (IsFinite(best.value)) {
      token = sampling.is_greedy != 0
                  ? best.idx
                  : DrawOne(x, args.vocab_size, best.value, sampling, row.position, &memory);
    }
    if (token >= 0 && sampling.num_logprobs >= 0) {
      constexpr int64_t kColumns = 1 + kMaxDeviceLogprobs;
      num_logprobs = sampling.num_logprobs;
      rank = TellLogprobs(logits, args.vocab_size, raw.best.value, token, num_logprobs,
                          args.logprob_ids + blockIdx.x * kColumns,
                          args.logprobs + blockIdx.x * kColumns, &memory);
    }
  }
  if (threadIdx.x != 0) return;
  args.drawn[blockIdx.x] = {token, raw.num_bad, rank, num_logprobs};
  args.slot_tokens[row.slot] = token < 0 ? 0 : token;  // a request that failed may run once more
  if (token >= 0 && params.has_penalties != 0) {
    args.counts[row.slot * args.vocab_size + token] += kOneOutput;
  }
}

constexpr int kCountThreads = 256;
constexpr int kPutThreads = 256;

__global__ void CountTokensKernel(int32_t* counts, const TokenId* token_ids,
                                  int64_t num_prompt_tokens, int64_t num_tokens) {
  const int64_t i = int64_t{blockIdx.x} * kCountThreads + threadIdx.x;
  if (i >= num_tokens) return;
  int32_t* count = counts + token_ids[i];
  if (i < num_prompt_tokens) {
    atomicOr(count, kInPrompt);
  } else {
    atomicAdd(count, kOneOutput);
  }
}

__global__ void PutTokensKernel(int32_t* token_ids, const int32_t* drawn_by, int64_t num_tokens,
                                const int32_t* slot_tokens) {
  const int64_t t = int64_t{blockIdx.x} * kPutThreads + threadIdx.x;
  if (t < num_tokens && drawn_by[t] >= 0) token_ids[t] = slot_tokens[drawn_by[t]];
}

}  // namespace

void LaunchPutTokens(int32_t* token_ids, const int32_t* drawn_by, int64_t num_tokens,
                     const int32_t* slot_tokens, cudaStream_t stream) {
  Launch(stream, static_cast<unsigned>((num_tokens + kPutThreads - 1) / kPutThreads), kPutThreads,
         PutTokensKernel, token_ids, drawn_by, num_tokens, slot_tokens);
}

void LaunchDraw(const CudaDrawArgs& args, int64_t num_rows, cudaStream_t stream) {
  Launch(stream, static_cast<unsigned>(num_rows), kSelectThreads, DrawKernel, args);
}

void LaunchCountTokens(int32_t* counts, const TokenId* token_ids, int64_t num_prompt_tokens,
                       int64_t num_tokens, cudaStream_t stream) {
  Launch(stream, static_cast<unsigned>((num_tokens + kCountThreads - 1) / kCountThreads),
         kCountThreads, CountTokensKernel, counts, token_ids, num_prompt_tokens, num_tokens);
}

}  // namespace tandem
