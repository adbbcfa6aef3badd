// Figures of the cuda backend on this machine: ceilings, decode and prefill steps of a random model
// with graphs and without, and a mixed load through the scheduler.
//
//   gpu_figures_cuda --probe                         prints what the device is; exit status 1: none
//   gpu_figures_cuda --json=FILE [--tiny] SHAPE ...  0.6b, 1b, 8b, tiny, with -int4 or -int8 for
//                                                    weights in codes; attention, products
//
//   gpu_figures_cuda --json=FILE --steps=BxT SHAPE   only a few eager steps of B requests with T
//   new
//                                                    tokens each, for a profiler
//
// Shares are of the ceilings measured in the same run: decode of the copy bandwidth, prefill of the
// rate of a large product. Times are medians of steps on the host's clock, sampling included;
// "device idle" is the time on the device's clock between the last op of a step and the first of
// the next, and its share of steps and pauses together.
// --tiny: small work, to see that all of it runs. FILE is rewritten after each row, so that a run
// that is ended early leaves its rows so far.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/random.h"
#include "engine_core/executor/graph_sizes.h"
#include "engine_core/executor/kv_cache_size.h"
#include "engine_core/executor/model_runner.h"
#include "engine_core/models/registry.h"
#include "engine_core/scheduler/scheduler.h"
#include "tests/gpu/attention_figures.h"
#include "tests/gpu/product_figures.h"

#ifdef TANDEM_HAS_PROFILER
#include <cuda_profiler_api.h>
#endif

namespace tandem {
namespace {

constexpr int32_t kBlockSize = 16;

struct ModelShape {
  std::string_view name;
  std::string_view config;
};
constexpr ModelShape kShapes[] = {
    {"0.6b", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
      "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "head_dim": 128,
      "num_key_value_heads": 8, "intermediate_size": 3072, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "hidden_act": "silu",
      "rope_theta": 1000000, "tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
    {"1b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "head_dim": 64,
      "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256,
      "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "hidden_act": "silu",
      "tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
    {"8b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "head_dim": 128,
      "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
      "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "hidden_act": "silu",
      "tie_word_embeddings": false, "torch_dtype": "bfloat16"})"},
    {"tiny", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
      "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16,
      "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 420,
      "max_position_embeddings": 1024, "rms_norm_eps": 1e-6, "hidden_act": "silu",
      "tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
};
const ModelShape* FindShape(std::string_view name) {
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return &shape;
  }
  return nullptr;
}

struct Options {
  std::string json;
  bool is_tiny = false;
  int32_t profiled_requests = 0;  // 0: figures are wanted
  int32_t profiled_tokens = 0;
  std::vector<std::string> shapes;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Rows of one table, printed and written as JSON.
class Report {
 public:
  explicit Report(std::string path) : path_(std::move(path)) {}
  // `share` < 0: of nothing.
  void Add(const std::string& name, double value, const std::string& unit, double share = -1) {
    std::printf("%-46s %14.3f %-9s", name.c_str(), value, unit.c_str());
    if (share >= 0) std::printf(" %5.1f%%", 100 * share);
    std::printf("\n");
    std::fflush(stdout);
    rows_ += std::string(rows_.empty() ? "" : ",\n") + "  {\"name\": \"" + name +
             "\", \"value\": " + std::to_string(value) + ", \"unit\": \"" + unit + "\"" +
             (share >= 0 ? ", \"share\": " + std::to_string(share) : "") + "}";
    std::ofstream out(path_);
    out << "[\n" << rows_ << "\n]\n";
    is_written_ = static_cast<bool>(out.flush());
  }
  bool is_written() const { return is_written_; }

 private:
  std::string path_;
  std::string rows_;
  bool is_written_ = false;
};

// With random matrices, drawn on the device.
std::unique_ptr<Backend> MakeBackend(const Options& options) {
  auto backend = MakeCudaBackend(
      {.num_threads = options.is_tiny ? 1 : 4, .random = RandomMatrices{.seed = 1}});
  CHECK(backend.ok()) << backend.status().ToString();
  return *std::move(backend);
}

// Median seconds of the ops that `enqueue` calls.
template <class F>
double TimeOps(Backend& backend, int rounds, F enqueue) {
  enqueue();
  backend.device().WaitFor(backend.device().SetMark());
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const double begin = Now();
    enqueue();
    backend.device().WaitFor(backend.device().SetMark());
    times.push_back(Now() - begin);
  }
  return Median(times);
}

struct Ceilings {
  double bytes_per_second = 0;  // read and written
  double flops = 0;
};

// Matrices without data, and norms of ones.
class ShapesAlone final : public Weights {
 public:
  StatusOr<WeightTensor> Get(std::string_view, int64_t rows, int64_t columns) override {
    if (rows > 0) return WeightTensor(Tensor(nullptr, DType::kBf16, {rows, columns}), {});
    std::vector<std::byte> memory(static_cast<size_t>(columns) * sizeof(Bf16));
    const Bf16 one = ToBf16(1.0f);
    for (int64_t i = 0; i < columns; ++i) std::memcpy(&memory[i * sizeof one], &one, sizeof one);
    return WeightTensor(Tensor(nullptr, DType::kBf16, {columns}), std::move(memory));
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t, int64_t, int64_t rows,
                                      int64_t columns) override {
    return Get(name, rows, columns);
  }
  bool Has(std::string_view) const override { return false; }
};

// A random matrix [n, n] as the input of an op.
OwnedTensor RandomRows(Backend* backend, int64_t n) {
  const MatrixSource shape(Tensor(nullptr, DType::kBf16, {n, n}));
  const auto table = backend->Pack({&shape, 1}).value();
  std::vector<int32_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  const OwnedTensor ids = backend->device().Allocate(DType::kI32, {n}).value();
  backend->device().CopyIn(ids, Tensor(rows.data(), DType::kI32, {n}));
  const OwnedTensor numbers = backend->device().Allocate(DType::kF32, {n, n}).value();
  OwnedTensor result = backend->device().Allocate(DType::kBf16, {n, n}).value();
  backend->ops().Embedding(numbers, ids, *table);
  backend->ops().Convert(result, numbers);
  backend->device().WaitFor(backend->device().SetMark());  // the table and the numbers go away
  return result;
}

Ceilings MeasureCeilings(const Options& options, Report* report) {
  const std::unique_ptr<Backend> backend = MakeBackend(options);
  Ceilings ceilings;
  const int64_t copied = options.is_tiny ? int64_t{1} << 18 : int64_t{1} << 30;  // of 4 bytes
  {
    const OwnedTensor from = backend->device().Allocate(DType::kF32, {copied}).value();
    const OwnedTensor to = backend->device().Allocate(DType::kF32, {copied}).value();
    const double seconds = TimeOps(*backend, 10, [&] { backend->device().StartCopyIn(to, from); });
    ceilings.bytes_per_second = 8.0 * static_cast<double>(copied) / seconds;
  }
  report->Add("copy on the device, read and written", ceilings.bytes_per_second / 1e9, "GB/s");
  const int64_t n = options.is_tiny ? 48 : 8192;
  const MatrixSource shape(Tensor(nullptr, DType::kBf16, {n, n}));
  const auto weight = backend->Pack({&shape, 1}).value();
  const OwnedTensor x = RandomRows(backend.get(), n);
  const OwnedTensor out = backend->device().Allocate(DType::kBf16, {n, n}).value();
  const double seconds = TimeOps(*backend, 10, [&] { backend->ops().Linear(out, x, *weight); });
  ceilings.flops = 2.0 * static_cast<double>(n) * static_cast<double>(n * n) / seconds;
  report->Add("bf16 product " + std::to_string(n) + "^3", ceilings.flops / 1e12, "TFLOP/s");
  return ceilings;
}

struct Bench {
  std::string name;
  WeightFormats formats;
  ModelConfig config;
  ExecutorLimits limits;
  std::unique_ptr<ModelRunner> runner;
};

// "8b-int4": the shape 8b with matrices in codes of 4 bits.
std::string ShapeOf(const std::string& name) { return name.substr(0, name.find("-int")); }
WeightFormats FormatsOf(const std::string& name) {
  return WeightFormatsOf(name.ends_with("-int4")   ? "int4-g128"
                         : name.ends_with("-int8") ? "int8"
                                                   : "none");
}

Bench MakeBench(const Options& options, const ModelShape& shape, const std::string& name,
                Report* report) {
  Bench bench;
  bench.name = name;
  bench.formats = FormatsOf(name);
  bench.config = ParseModelConfig(shape.config, "").value();
  bench.limits = {.num_blocks = options.is_tiny ? 64 : 256 * 2048 / kBlockSize + 1,
                  .block_size = kBlockSize,
                  .max_num_seqs = options.is_tiny ? 8 : 256,
                  .max_num_batched_tokens = options.is_tiny ? 64 : 8192,
                  .max_model_len = options.is_tiny ? 96 : 8192,
                  .vocab_size = static_cast<int32_t>(bench.config.vocab_size)};
  ModelRunnerOptions runner_options;
  runner_options.limits = bench.limits;
  runner_options.graph_sizes =
      GraphSizes({.max_num_seqs = bench.limits.max_num_seqs,
                  .max_num_batched_tokens = bench.limits.max_num_batched_tokens});
  std::unique_ptr<Backend> backend = MakeBackend(options);
  double begin = Now();
  ShapesAlone weights;
  auto model =
      LoadModel({bench.config, ModelLimitsOf(bench.limits), weights, *backend, bench.formats});
  CHECK(model.ok()) << model.status().ToString();
  backend->device().WaitFor(backend->device().SetMark());
  report->Add(name + " random weights made", Now() - begin, "s");
  auto runner = ModelRunner::CreateWithoutCache(std::move(backend), *std::move(model), bench.config,
                                                runner_options);
  CHECK(runner.ok()) << runner.status().ToString();
  bench.runner = *std::move(runner);
  begin = Now();
  const bool is_profiled = options.profiled_requests > 0;
  if (!is_profiled) {
    CHECK(bench.runner->RunFirstSteps().ok());
    report->Add(name + " first steps, of up to " +
                    std::to_string(bench.limits.max_num_batched_tokens) + " tokens",
                Now() - begin, "s");
  }
  while (!bench.runner->AllocateKvCache(bench.limits.num_blocks, bench.limits.max_model_len).ok()) {
    bench.limits.num_blocks /= 2;
    CHECK_GT(bench.limits.num_blocks, 1);
  }
  if (is_profiled) return bench;
  begin = Now();
  const Status captured = bench.runner->CaptureGraphs();
  if (!captured.ok()) {
    std::printf("no graphs: %s\n", captured.ToString().c_str());
    bench.runner->DropGraphs();
  }
  report->Add(name + " graphs captured: " + std::to_string(bench.runner->num_graphs()),
              Now() - begin, "s");
  return bench;
}

// Requests stepped by hand, with up to two steps in flight as the engine has.
class Steps {
 public:
  Steps(Bench* bench, int32_t num_requests, int32_t context, bool is_random = false)
      : bench_(bench), num_requests_(num_requests), context_(context) {
    params_.temperature = is_random ? 0.8 : 0;
    params_.top_p = is_random ? 0.95 : 1;
    params_.seed = 1;
    params_.ignore_eos = true;
    params_.max_tokens = bench->limits.max_model_len;
    prompt_.assign(static_cast<size_t>(context), 5);
  }
  ~Steps() {
    SchedulerOutput last;
    for (int32_t r = 0; r < num_requests_; ++r) last.freed_slots.push_back(RequestSlot{r});
    CHECK(bench_->runner->Execute(last, &result_).ok());
  }

  // Of a whole prompt, or its last token. All requests read the same blocks: their contents do not
  // matter here, and a cache of any size has room for them.
  double Admit(int32_t new_tokens, int32_t room) {
    SchedulerOutput step;
    const int32_t num_blocks = (context_ + room + kBlockSize - 1) / kBlockSize;
    for (int32_t r = 0; r < num_requests_; ++r) {
      step.admitted.push_back({.request_idx = r,
                               .request_id = &id_,
                               .sampling_params = &params_,
                               .token_ids = prompt_,
                               .num_prompt_tokens = context_});
      step.requests.push_back({.slot = RequestSlot{r},
                               .num_computed_tokens = context_ - new_tokens,
                               .num_scheduled_tokens = new_tokens,
                               .new_blocks_begin = r * num_blocks,
                               .num_new_blocks = num_blocks,
                               .kind = ScheduledKind::kNew,
                               .needs_sample = true});
      for (int32_t b = 0; b < num_blocks; ++b) {
        step.new_block_ids.push_back(
            BlockId{1 + (r * num_blocks + b) % (bench_->limits.num_blocks - 1)});
      }
    }
    step.num_scheduled_tokens = num_requests_ * new_tokens;
    const double begin = Now();
    CHECK(bench_->runner->Execute(step, &result_).ok());
    return Now() - begin;
  }

  struct StepTimes {
    double step = 0;    // seconds, medians
    double submit = 0;  // the host's part, while the device runs the previous step
  };
  // Decode steps of all requests.
  StepTimes Decode(int num_steps) {
    std::vector<double> times, submits;
    double last = Now();
    for (int i = 0; i <= num_steps; ++i) {
      if (i < num_steps) {
        SchedulerOutput step;
        for (int32_t r = 0; r < num_requests_; ++r) {
          step.requests.push_back({.slot = RequestSlot{r},
                                   .num_computed_tokens = context_,
                                   .num_scheduled_tokens = 1,
                                   .needs_sample = true});
        }
        step.num_scheduled_tokens = num_requests_;
        ++context_;
        const double begin = Now();
        CHECK(bench_->runner->Submit(step).ok());
        submits.push_back(Now() - begin);
      }
      if (i == 0) continue;
      CHECK(bench_->runner->Collect(&result_).ok());
      times.push_back(Now() - last);
      last = Now();
    }
    return {Median(times), Median(submits)};
  }

 private:
  Bench* bench_;
  int32_t num_requests_;
  int32_t context_;
  wire::SamplingParams params_;
  RequestId id_ = "bench";
  std::vector<TokenId> prompt_;
  ModelOutput result_;
};

double BodyParameters(const ModelConfig& c) {
  const auto q = static_cast<double>(c.num_heads * c.head_dim);
  const auto kv = static_cast<double>(c.num_kv_heads * c.head_dim);
  const auto hidden = static_cast<double>(c.hidden_size);
  return static_cast<double>(c.num_layers) * hidden *
         (2 * q + 2 * kv + 3 * static_cast<double>(c.intermediate_size));
}

double BytesOf(WeightFormat format) {
  return format == WeightFormat::kInt4Group128 ? 4.25 / 8 : format == WeightFormat::kInt8 ? 1 : 2;
}

// Bytes that a decode step reads.
double StepBytes(const ModelConfig& c, WeightFormats formats, int32_t num_requests,
                 int32_t context) {
  const double weights =
      BytesOf(formats.layers) * BodyParameters(c) +
      BytesOf(formats.embedding) * static_cast<double>(c.vocab_size * c.hidden_size);
  const double kv = 4.0 * static_cast<double>(c.num_layers * c.num_kv_heads * c.head_dim);
  return weights + kv * num_requests * context;
}

// The average time the device waits before a step.
void ReportIdle(const std::string& of, const DeviceTimes& times, Report* report) {
  report->Add(of + ", device idle", times.idle_seconds / static_cast<double>(times.num_steps) * 1e6,
              "us", times.idle_share());
}

void MeasureDecode(const Options& options, const Ceilings& ceilings, Bench* bench, Report* report) {
  const std::string& name = bench->name;
  const std::string mode = bench->runner->num_graphs() > 0 ? " graph" : " eager";
  const int num_steps = options.is_tiny ? 3 : 60;
  const std::vector<int32_t> batches =
      options.is_tiny ? std::vector<int32_t>{1, 3} : std::vector<int32_t>{1, 8, 32, 128, 256};
  const int32_t context = options.is_tiny ? 20 : 512;
  for (const int32_t batch : batches) {
    for (const bool is_random : {false, true}) {
      if (is_random && (mode == " eager" || batch != batches.back())) continue;
      Steps steps(bench, batch, context, is_random);
      steps.Admit(1, num_steps + 8);
      steps.Decode(3);
      bench->runner->StartClock();
      const Steps::StepTimes times = steps.Decode(num_steps);
      const double floor =
          StepBytes(bench->config, bench->formats, batch, context) / ceilings.bytes_per_second;
      const std::string row = name + " decode B=" + std::to_string(batch) + " ctx " +
                              std::to_string(context) + mode + (is_random ? " top_p" : "");
      report->Add(row, times.step * 1e3, "ms", floor / times.step);
      report->Add(row + ", host", times.submit * 1e3, "ms");
      ReportIdle(row, bench->runner->device_times(), report);
    }
  }
}

// Whole prompts in one step; a single run if that takes long.
void MeasurePrefill(const Options& options, const Ceilings& ceilings, Bench* bench,
                    Report* report) {
  const ModelConfig& c = bench->config;
  struct Prompts {
    int32_t count, length;
  };
  const std::vector<Prompts> all =
      options.is_tiny ? std::vector<Prompts>{{2, 30}} : std::vector<Prompts>{{4, 2048}, {1, 8184}};
  for (const auto& [count, length] : all) {
    std::vector<double> times;
    for (int i = 0; i < 4 && (i < 2 || times.back() < 0.5); ++i) {
      times.push_back(Steps(bench, count, length).Admit(length, 8));
    }
    const double seconds = *std::ranges::min_element(times);
    const double flops =
        static_cast<double>(count) * length *
        (2 * BodyParameters(c) +
         2.0 * static_cast<double>(c.num_layers * c.num_heads * c.head_dim) * length);
    report->Add(
        bench->name + " prefill of " + std::to_string(count) + " x " + std::to_string(length),
        seconds * 1e3, "ms", flops / ceilings.flops / seconds);
  }
}

// Requests with prompts and outputs of 100 to 1024 tokens, all submitted at once, through the
// scheduler.
void MeasureMixed(const Options& options, Bench* bench, Report* report) {
  const int num_requests = options.is_tiny ? 6 : 256;
  const int low = options.is_tiny ? 4 : 100, high = options.is_tiny ? 20 : 1024;
  KvCacheManager cache(CacheWithLimits({}, bench->limits));
  SchedulerConfig config;
  config.max_num_batched_tokens = bench->limits.max_num_batched_tokens;
  config.max_num_seqs = bench->limits.max_num_seqs;
  config.max_model_len = bench->limits.max_model_len;
  Scheduler scheduler(config, &cache);
  int64_t num_tokens = 0;
  for (int i = 0; i < num_requests; ++i) {
    const auto length = [&](uint64_t which) {
      return low + static_cast<int>(UniformAt(7, static_cast<uint64_t>(i), which) * (high - low));
    };
    wire::EngineCoreRequest request;
    request.request_id = std::to_string(i);
    for (int t = 0; t < length(0); ++t) {
      request.prompt_token_ids.push_back(3 + (t * 31 + i * 7) % 400);
    }
    wire::SamplingParams params;
    params.temperature = 0;
    params.ignore_eos = true;
    params.max_tokens = length(1);
    request.sampling_params = std::move(params);
    num_tokens += length(1);
    CHECK(scheduler.Add(std::move(request), 0).ok());
  }
  ModelOutput result;
  ClientOutputs outputs;
  std::vector<ClientMessage> messages;
  std::vector<const SchedulerOutput*> in_flight;
  bench->runner->StartClock();
  const double begin = Now();
  for (;;) {
    const SchedulerOutput& step = scheduler.Schedule(Now());
    if (!step.empty() || !step.freed_slots.empty()) {
      CHECK(bench->runner->Submit(step).ok());
      in_flight.push_back(&step);
    }
    if (in_flight.empty()) break;
    if (!step.empty() && in_flight.size() < ExecutorLimits().max_steps_in_flight) continue;
    CHECK(bench->runner->Collect(&result).ok());
    scheduler.Update(*in_flight.front(), &result, &outputs);
    in_flight.erase(in_flight.begin());
    messages.clear();
    outputs.Take(Now(), &messages);
    for (ClientMessage& message : messages) outputs.Recycle(std::move(message.outputs));
  }
  const std::string row =
      bench->name + " mixed load of " + std::to_string(num_requests) + " requests";
  report->Add(row, static_cast<double>(num_tokens) / (Now() - begin), "tokens/s");
  ReportIdle(row, bench->runner->device_times(), report);
  report->Add(bench->name + " of these, steps that overlapped",
              static_cast<double>(bench->runner->num_overlapped()), "steps");
}

int Probe() {
  const auto backend = MakeCudaBackend({.num_threads = 1});
  if (!backend.ok()) {
    std::printf("%s\n", backend.status().ToString().c_str());
    return 1;
  }
  // Runs a kernel and reads its result.
  const float one = 1;
  const OwnedTensor x =
      (*backend)
          ->device()
          .Upload(Tensor(const_cast<float*>(&one), DType::kF32, {1, 1}), DType::kF32)
          .value();
  float two = 0;
  (*backend)->ops().Add(x, x);
  (*backend)->device().CopyOut(Tensor(&two, DType::kF32, {1, 1}), x);
  std::printf("%s: 1 + 1 = %g\n", (*backend)->description().c_str(), static_cast<double>(two));
  return two == 2 ? 0 : 1;
}

// Attention alone, by each set of attention kernels in this build.
void MeasureAttentionBackends(const Options& options, const Ceilings& ceilings, Report* report) {
  for (const AttentionBackend attention :
       {AttentionBackend::kTandem, AttentionBackend::kFlashInfer}) {
    const bool is_flashinfer = attention == AttentionBackend::kFlashInfer;
    if (is_flashinfer && !HasFlashInfer()) continue;
    const auto backend = MakeCudaBackend({.num_threads = 1, .attention = attention});
    CHECK(backend.ok()) << backend.status().ToString();
    const AttentionFigures figures = MeasureAttention(backend->get(), options.is_tiny);
    const std::string name = is_flashinfer ? "attention flashinfer " : "attention tandem ";
    for (const DecodeFigure& decode : figures.decodes) {
      report->Add(name + "decode B=" + std::to_string(decode.num_requests) + " ctx " +
                      std::to_string(decode.context),
                  decode.seconds * 1e3, "ms",
                  decode.bytes / ceilings.bytes_per_second / decode.seconds);
    }
    report->Add(name + "prefill of 4096", figures.prefill_seconds * 1e3, "ms",
                figures.prefill_flops / ceilings.flops / figures.prefill_seconds);
    if (is_flashinfer) continue;  // it has no kernel for these heads
    report->Add(name + "tower of 4096", figures.tower_seconds * 1e3, "ms",
                figures.tower_flops / ceilings.flops / figures.tower_seconds);
  }
}

// Of few rows the share is of the time that reading the matrix takes, of many that of the product.
void MeasureProductsOfCodes(const Options& options, const Ceilings& ceilings, Report* report) {
  const auto backend = MakeCudaBackend({.num_threads = options.is_tiny ? 1 : 4}).value();
  for (const ProductFigure& figure : MeasureProducts(backend.get(), options.is_tiny)) {
    const double floor =
        std::max(figure.bytes / ceilings.bytes_per_second, figure.flops / ceilings.flops);
    report->Add(figure.name, figure.seconds * 1e6, "us", floor / figure.seconds);
  }
}

// What ncu --profile-from-start off sees.
void SetProfiled(bool is_on) {
#ifdef TANDEM_HAS_PROFILER
  is_on ? cudaProfilerStart() : cudaProfilerStop();
#else
  static_cast<void>(is_on);
#endif
}

int RunProfiled(const Options& options) {
  Report report(options.json);
  for (const std::string& name : options.shapes) {
    const ModelShape* shape = FindShape(ShapeOf(name));
    CHECK(shape != nullptr) << "unknown shape " << name;
    Bench bench = MakeBench(options, *shape, name, &report);
    const bool is_decode = options.profiled_tokens == 1;
    const auto run = [&] {
      Steps steps(&bench, options.profiled_requests, is_decode ? 512 : options.profiled_tokens);
      steps.Admit(options.profiled_tokens, 8);
    };
    run();  // chooses the products' algorithms
    SetProfiled(true);
    run();
    SetProfiled(false);
  }
  return 0;
}

int Run(const Options& options) {
  if (options.profiled_requests > 0) return RunProfiled(options);
  Report report(options.json);
  const Ceilings ceilings = MeasureCeilings(options, &report);
  for (const std::string& name : options.shapes) {
    if (name == "attention") {
      MeasureAttentionBackends(options, ceilings, &report);
      continue;
    }
    if (name == "products") {
      MeasureProductsOfCodes(options, ceilings, &report);
      continue;
    }
    const ModelShape* shape = FindShape(ShapeOf(name));
    if (shape == nullptr) {
      std::fprintf(stderr, "unknown shape %s\n", name.c_str());
      return 2;
    }
    Bench bench = MakeBench(options, *shape, name, &report);
    if (bench.runner->num_graphs() > 0) {
      MeasureDecode(options, ceilings, &bench, &report);
      if (name == "0.6b" || options.is_tiny) MeasureMixed(options, &bench, &report);
    }
    MeasurePrefill(options, ceilings, &bench, &report);
    bench.runner->DropGraphs();
    MeasureDecode(options, ceilings, &bench, &report);
  }
  return report.is_written() ? 0 : 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--json=")) {
      options.json = argument.substr(7);
    } else if (argument == "--probe") {
      return tandem::Probe();
    } else if (std::sscanf(argument.c_str(), "--steps=%dx%d", &options.profiled_requests,
                           &options.profiled_tokens) == 2) {
      continue;
    } else if (argument == "--tiny") {
      options.is_tiny = true;
    } else if (!argument.starts_with("--")) {
      options.shapes.push_back(argument);
    } else {
      std::fprintf(stderr, "unknown argument %s\n", argument.c_str());
      return 2;
    }
  }
  if (options.json.empty() || options.shapes.empty()) {
    std::fprintf(stderr,
                 "usage: --json=FILE [--tiny] SHAPE ... (0.6b, 1b, 8b, tiny, 8b-int4 ..., "
                 "attention, products)\n");
    return 2;
  }
  return tandem::Run(options);
}
