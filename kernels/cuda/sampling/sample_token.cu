// Samples one token from one row of logits: one block per row. The steps and their order are those
// of engine_core/sampling/sampler.h; kernels/device_sampler.h says where bits may differ.
// A row is read once for its largest logit and once more to gather the tokens whose weight is worth
// a look. These are nearly always enough for every limit; otherwise the row itself is searched.

#include "common/random.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sampling/sampler.h"
#include "kernels/cuda/sampling/select.cuh"

namespace tandem {
namespace {

constexpr int32_t kInPrompt = 1;
constexpr int32_t kOneOutput = 2;
// As a share of the likeliest token's weight; 99.9% of nuclei lie above it, in at most a thousand
// tokens.
constexpr float kWorthwhile = 0x1p-12f;

// The weights of a softmax at a temperature, and the bins into which FindCut sorts logits.
struct Softmax {
  float max;
  float temperature;

  __device__ float WeightOf(float x) const { return ExpNonPositive((x - max) / temperature); }
  __device__ int BinOf(float x) const {
    constexpr float kBinsPerUnit = kNumBins / 88.0f;  // below exp(-88) there is no weight
    return static_cast<int>(fminf((max - x) / temperature * kBinsPerUnit, kNumBins - 1));
  }
};

__device__ bool NeedsProcessing(const CudaSlotParams& params, const SamplingRow& row) {
  return params.has_allowed_mask != 0 || params.num_words > 0 || params.num_biased > 0 ||
         params.sampling.has_penalties() ||
         (params.num_stops > 0 && row.num_outputs < params.sampling.min_tokens);
}

// Bans the last token of each word whose other tokens are the request's latest outputs.
__device__ void BanWords(const CudaSampleArgs& args, const SamplingRow& row, int num_words,
                         const int32_t* word_ends, const int32_t* words, float* x) {
  constexpr int kPlaces = static_cast<int>(kMaxDeviceWordTokens);
  const int32_t* recent = args.recent + row.slot * int64_t{kPlaces};
  for (int w = static_cast<int>(threadIdx.x); w < num_words; w += kSelectThreads) {
    const int begin = w == 0 ? 0 : word_ends[w - 1], last = word_ends[w] - 1;
    const int first_output = row.num_outputs - (last - begin);
    bool is_begun = first_output >= 0;
    for (int i = begin; is_begun && i < last; ++i) {
      is_begun = words[i] == recent[(first_output + i - begin) % kPlaces];
    }
    if (is_begun) x[words[last]] = -INFINITY;
  }
}

// Allowed ids, bad words, min tokens, bias, penalties: reads the model's logits, writes x.
__device__ void ProcessLogits(const CudaSampleArgs& args, const CudaSlotParams& params,
                              const SamplingRow& row, const float* logits, float* x) {
  const uint32_t* allowed =
      params.has_allowed_mask != 0 ? args.allowed + row.slot * args.mask_words : nullptr;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < args.vocab_size; i += kSelectThreads) {
    const bool may = allowed == nullptr || (allowed[i / 32] >> i % 32 & 1) != 0;
    x[i] = may ? logits[i] : -INFINITY;
  }
  __syncthreads();
  const int32_t* numbers = args.numbers + row.slot * static_cast<int64_t>(kMaxDeviceNumbers);
  const CudaSlotLists lists = ListsOf(params);
  BanWords(args, row, params.num_words, numbers + lists.word_ends, numbers + lists.words, x);
  if (row.num_outputs < params.sampling.min_tokens) {
    for (int i = static_cast<int>(threadIdx.x); i < params.num_stops; i += kSelectThreads) {
      x[numbers[lists.stops + i]] = -INFINITY;
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < params.num_biased; i += kSelectThreads) {
    x[numbers[lists.biased + i]] += std::bit_cast<float>(numbers[lists.biases + i]);
  }
  __syncthreads();
  if (params.sampling.has_penalties()) {
    const SamplingNumbers& sampling = params.sampling;
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

// The tokens that top_k and top_p keep: logits of at least `least_of_top_k` that are above `least`,
// or equal to it with an id up to `last_equal`.
struct Kept {
  float least_of_top_k = -INFINITY;
  float least = -INFINITY;
  int32_t last_equal = INT32_MAX;

  __device__ bool Has(float x, int32_t id) const {
    return x >= least_of_top_k && (x > least || (x == least && id <= last_equal));
  }
};

struct Choice {
  int32_t token;
  Kept kept;
};

__device__ Choice DrawFrom(const Line& line, const Softmax& softmax,
                           const SamplingNumbers& sampling, Mass nucleus_of, double uniform,
                           SelectMemory* memory) {
  const auto bin_of = [&](float x) { return softmax.BinOf(x); };
  Kept kept;
  const auto weight_of = [&](float x) {
    const float weight = softmax.WeightOf(x);
    return weight >= sampling.min_p && x >= kept.least_of_top_k ? weight : 0.0f;
  };
  if (sampling.top_k > 0) {
    const auto one_of = [&](float x) { return Mass{weight_of(x) > 0 ? 1u : 0u}; };
    const auto wanted = [&](Mass) { return static_cast<Mass>(sampling.top_k); };
    const float least = FindCut(line, bin_of, one_of, wanted, memory).x;
    kept.least_of_top_k = least;
  }
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
    const Found last = FindInOrder(
        line.size, is_equal, [=](Mass) { return num_equal; }, memory);
    kept.least = cut.x;
    kept.last_equal = line.IdAt(last.idx);
  }
  const auto mass_at = [&](int64_t i) {
    return kept.Has(line.x[i], line.IdAt(i)) ? MassOf(weight_of(line.x[i])) : Mass{0};
  };
  // The running sum has to exceed this share of the total.
  const auto drawn = [=](Mass total) {
    return static_cast<Mass>(uniform * static_cast<double>(total)) + 1;
  };
  return {line.IdAt(FindInOrder(line.size, mass_at, drawn, memory).idx), kept};
}

__device__ Choice DrawOne(const float* x, int64_t size, float max, const SamplingNumbers& sampling,
                          int32_t position, SelectMemory* memory) {
  const Softmax softmax = {max, sampling.temperature};
  const double uniform = UniformAt(sampling.seed, static_cast<uint64_t>(position));
  const bool has_top_k = sampling.top_k > 0, has_top_p = sampling.top_p < 1;
  const bool has_min_p = sampling.min_p > 0;
  const Line row = {x, size, nullptr};
  if (!has_top_k && !has_top_p && !has_min_p) {
    return DrawFrom(row, softmax, sampling, 0, uniform, memory);
  }
  const bool needs_no_more = has_min_p && (!has_top_k || sampling.min_p >= kWorthwhile);
  const float least = needs_no_more ? sampling.min_p : kWorthwhile;
  const auto weight_of = [&](float value) { return softmax.WeightOf(value); };
  const Gathered gathered = GatherCandidates(x, size, weight_of, least, memory);
  // top_p is a share of what min_p and top_k leave; without them, of the whole row.
  const Mass nucleus_of = has_top_k || has_min_p ? 0 : gathered.total_mass;
  bool are_enough = needs_no_more;
  if (!are_enough) {
    are_enough = has_top_k ? gathered.count >= sampling.top_k
                           : static_cast<double>(gathered.mass) >=
                                 double{sampling.top_p} * static_cast<double>(nucleus_of);
  }
  const Line candidates = {memory->candidates, kMaxCandidates, memory->candidate_ids};
  const bool suffice = are_enough && gathered.has_all;
  return DrawFrom(suffice ? candidates : row, softmax, sampling, nucleus_of, uniform, memory);
}

// The logits from which the token was drawn: x over the temperature, -infinity where not kept.
// `out` may be x.
__device__ void LimitLogits(const float* x, int64_t size, float max,
                            const SamplingNumbers& sampling, Kept kept, float* out,
                            SelectMemory* memory) {
  const Softmax softmax = {max, sampling.temperature};
  const bool has_weights = sampling.top_p < 1 || sampling.min_p > 0;
  // top_k alone also keeps tokens whose weight is too small to count.
  if (!has_weights && sampling.top_k > 0) {
    const auto bin_of = [&](float value) { return softmax.BinOf(value); };
    const auto one_of = [](float) { return Mass{1}; };
    const auto wanted = [&](Mass) { return static_cast<Mass>(sampling.top_k); };
    kept.least_of_top_k = FindCut({x, size, nullptr}, bin_of, one_of, wanted, memory).x;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < size; i += kSelectThreads) {
    const float weight = softmax.WeightOf(x[i]);
    const bool weighs = !has_weights || (weight > 0 && weight >= sampling.min_p);
    out[i] =
        weighs && kept.Has(x[i], static_cast<int32_t>(i)) ? x[i] / sampling.temperature : -INFINITY;
  }
  __syncthreads();
}

// Which logprobs of a row are wanted, and where they go.
struct LogprobsTask {
  const float* logits;
  int64_t size;
  float max;        // of them
  bool normalized;  // logprobs; else the logits
  int32_t num_others;
  const int32_t* other_ids;  // null: the top ones
  TokenLogprob* out;         // [1 + num_others]
};

// Writes the top tokens to out[1 ..]: most probable first, among equals the lower id first.
__device__ void WriteTopLogprobs(const LogprobsTask& task, const Softmax& softmax,
                                 bool has_candidates, double log_sum, SelectMemory* memory) {
  __shared__ Best top[kMaxDeviceLogprobs];
  __shared__ int num_top;
  const int num_others = task.num_others;
  const Line candidates = {memory->candidates, kMaxCandidates, memory->candidate_ids};
  const Line row = {task.logits, task.size, nullptr};
  const Line line = has_candidates ? candidates : row;
  const auto bin_of = [&](float x) { return softmax.BinOf(x); };
  const auto one_of = [](float) { return Mass{1}; };
  const auto wanted = [=](Mass) { return static_cast<Mass>(num_others); };
  const Cut cut = FindCut(line, bin_of, one_of, wanted, memory);
  const auto is_equal = [&](int64_t i) { return Mass{line.x[i] == cut.x ? 1u : 0u}; };
  const auto left = [&](Mass) { return static_cast<Mass>(num_others) - cut.before; };
  Kept kept;
  kept.least = cut.x;
  kept.last_equal = line.IdAt(FindInOrder(line.size, is_equal, left, memory).idx);
  if (threadIdx.x == 0) num_top = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < line.size; i += kSelectThreads) {
    if (kept.Has(line.x[i], line.IdAt(i))) top[atomicAdd(&num_top, 1)] = {line.x[i], line.IdAt(i)};
  }
  __syncthreads();
  if (threadIdx.x >= static_cast<unsigned>(num_others)) return;
  const Best own = top[threadIdx.x];
  int place = 1;
  for (int i = 0; i < num_others; ++i) {
    const bool is_better =
        top[i].value > own.value || (top[i].value == own.value && top[i].idx < own.idx);
    place += is_better ? 1 : 0;
  }
  task.out[place] = {own.idx, static_cast<float>(own.value - log_sum)};
}

// Writes the token's logprob and those of the others; returns the token's rank.
__device__ int32_t WriteLogprobs(const LogprobsTask& task, int32_t token, SelectMemory* memory) {
  const Softmax softmax = {task.max, 1};
  const auto weight_of = [&](float x) { return softmax.WeightOf(x); };
  const Gathered gathered =
      GatherCandidates(task.logits, task.size, weight_of, kWorthwhile, memory);
  const double log_sum =
      task.normalized
          ? static_cast<double>(task.max) + log(static_cast<double>(gathered.total_mass) * 0x1p-43)
          : 0;
  const auto logprob_of = [&](int32_t id) {
    return TokenLogprob{id, static_cast<float>(task.logits[id] - log_sum)};
  };
  if (task.other_ids != nullptr) {
    for (int i = static_cast<int>(threadIdx.x); i < task.num_others; i += kSelectThreads) {
      task.out[1 + i] = logprob_of(task.other_ids[i]);
    }
  } else if (task.num_others > 0) {
    const bool has_candidates = gathered.has_all && gathered.count >= task.num_others;
    WriteTopLogprobs(task, softmax, has_candidates, log_sum, memory);
  }
  if (threadIdx.x == 0) task.out[0] = logprob_of(token);
  return CountAtLeast(task.logits, task.size, task.logits[token], memory);
}

struct RowPlace {
  float* logits;
  float* processed;      // of the same size
  SampledToken* result;  // then room for logprobs
};

__device__ TokenLogprob* LogprobsOf(SampledToken* result) {
  return reinterpret_cast<TokenLogprob*>(result + 1);
}

__device__ SampledToken SampleOne(const CudaSampleArgs& args, const CudaSlotParams& params,
                                  const SamplingRow& row, const RowPlace& place, RowBest raw,
                                  SelectMemory* memory) {
  const SamplingNumbers& sampling = params.sampling;
  const float* x = place.logits;
  Best best = raw.best;
  if (NeedsProcessing(params, row)) {
    ProcessLogits(args, params, row, place.logits, place.processed);
    x = place.processed;
    best = FindBest(x, args.vocab_size, memory).best;
  }
  if (!IsFinite(best.value)) return {-1, 0, 0, -1};
  Choice choice = {best.idx, {}};
  if (!sampling.is_greedy()) {
    choice = DrawOne(x, args.vocab_size, best.value, sampling, row.position, memory);
  }
  if (sampling.num_logprobs < 0) return {choice.token, 0, 0, -1};
  const int32_t* numbers = args.numbers + row.slot * static_cast<int64_t>(kMaxDeviceNumbers);
  LogprobsTask task = {place.logits,
                       args.vocab_size,
                       raw.best.value,
                       IsNormalized(sampling.logprobs_mode),
                       sampling.num_logprobs,
                       params.num_logprob_ids > 0 ? numbers + ListsOf(params).logprob_ids : nullptr,
                       LogprobsOf(place.result)};
  if (IsProcessed(sampling.logprobs_mode)) {
    task.logits = x;
    task.max = best.value;
  }
  if (IsProcessed(sampling.logprobs_mode) && !sampling.is_greedy()) {
    LimitLogits(x, args.vocab_size, best.value, sampling, choice.kept, place.processed, memory);
    task.logits = place.processed;
    task.max = best.value / sampling.temperature;
  }
  return {choice.token, 0, WriteLogprobs(task, choice.token, memory), sampling.num_logprobs};
}

__device__ SampledToken ScoreOne(const CudaSampleArgs& args, const SamplingNumbers& sampling,
                                 int32_t token, const RowPlace& place, RowBest raw,
                                 SelectMemory* memory) {
  const LogprobsTask task = {place.logits,
                             args.vocab_size,
                             raw.best.value,
                             IsNormalized(sampling.logprobs_mode),
                             sampling.num_prompt_logprobs,
                             nullptr,
                             LogprobsOf(place.result)};
  return {token, 0, WriteLogprobs(task, token, memory), sampling.num_prompt_logprobs};
}

__device__ SampledToken* ResultOf(const CudaSampleArgs& args, int64_t at) {
  return reinterpret_cast<SampledToken*>(reinterpret_cast<int32_t*>(args.results) +
                                         at * kCudaResultWords);
}

// The token of row `at`, in thread 0; others may return another one.
__device__ int32_t SampleRow(const CudaSampleArgs& args, int64_t at, SelectMemory* memory) {
  const SamplingRow row = args.rows[at];
  const CudaSlotParams params = args.params[row.slot];
  const RowPlace place = {args.logits + at * args.logits_stride,
                          args.processed + at * args.vocab_size, ResultOf(args, at)};
  const bool is_scored = row.scored_token_id >= 0;
  RowBest raw;
  if (row.mask_row >= 0 && !is_scored) {
    const uint32_t* mask = args.masks + row.mask_row * args.mask_words;
    raw = MaskAndFindBest(place.logits, args.vocab_size, mask, memory);
  } else {
    raw = FindBest(place.logits, args.vocab_size, memory);
  }
  SampledToken result = {-1, raw.num_bad, 0, -1};
  if (raw.num_bad == 0) {
    result = is_scored ? ScoreOne(args, params.sampling, row.scored_token_id, place, raw, memory)
                       : SampleOne(args, params, row, place, raw, memory);
  }
  if (threadIdx.x != 0) return -1;
  *place.result = result;
  if (is_scored) return -1;
  const int32_t token = std::max(result.token_id, 0);  // a request that failed may run once more
  args.slot_tokens[row.slot] = token;
  if (params.sampling.has_penalties()) {
    args.counts[row.slot * args.vocab_size + token] += kOneOutput;
  }
  if (params.num_words > 0) {
    constexpr int64_t kPlaces = kMaxDeviceWordTokens;
    args.recent[row.slot * kPlaces + row.num_outputs % kPlaces] = token;
  }
  return result.token_id;
}

// A block samples a row and those after it while each is the draft that the next one follows.
__global__ void __launch_bounds__(kSelectThreads) SampleKernel(CudaSampleArgs args) {
  __shared__ SelectMemory memory;
  __shared__ int32_t token;
  int64_t at = blockIdx.x;
  if (args.rows[at].slot < 0) return;
  if (args.rows[at].draft_token_id >= 0) {
    // The block of the row before has it, unless that row is of an earlier call.
    if (at > 0 || !args.has_row_before) return;
    if (threadIdx.x == 0) token = ResultOf(args, -1)->token_id;
  } else {
    const int32_t sampled = SampleRow(args, at, &memory);
    if (threadIdx.x == 0) token = sampled;
    ++at;
  }
  bool counts = true;
  for (; at < args.num_rows && args.rows[at].draft_token_id >= 0; ++at) {
    __syncthreads();  // the token is there, and so is what it counts for
    counts = counts && token == args.rows[at].draft_token_id;
    __syncthreads();
    if (counts) {
      const int32_t sampled = SampleRow(args, at, &memory);
      if (threadIdx.x == 0) token = sampled;
    } else if (threadIdx.x == 0) {
      *ResultOf(args, at) = {kRejectedRow, 0, 0, -1};
    }
  }
}

constexpr int kCountThreads = 256;

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

__global__ void FillSampledTokensKernel(int32_t* ids, int64_t num_ids, const int32_t* slot_tokens) {
  const int64_t i = int64_t{blockIdx.x} * kCountThreads + threadIdx.x;
  if (i < num_ids && ids[i] < 0) ids[i] = slot_tokens[~ids[i]];
}

unsigned CountBlocks(int64_t count) {
  return static_cast<unsigned>((count + kCountThreads - 1) / kCountThreads);
}

}  // namespace

void LaunchSample(const CudaSampleArgs& args, int64_t num_rows, cudaStream_t stream) {
  Launch(stream, static_cast<unsigned>(num_rows), kSelectThreads, SampleKernel, args);
}

void LaunchCountTokens(int32_t* counts, const TokenId* token_ids, int64_t num_prompt_tokens,
                       int64_t num_tokens, cudaStream_t stream) {
  Launch(stream, CountBlocks(num_tokens), kCountThreads, CountTokensKernel, counts, token_ids,
         num_prompt_tokens, num_tokens);
}

void LaunchFillSampledTokens(int32_t* ids, int64_t num_ids, const int32_t* slot_tokens,
                             cudaStream_t stream) {
  Launch(stream, CountBlocks(num_ids), kCountThreads, FillSampledTokensKernel, ids, num_ids,
         slot_tokens);
}

}  // namespace tandem
