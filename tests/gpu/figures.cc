// Figures of the cuda backend on the machine this runs on: ceilings, decode and prefill steps of
// made-up models with graphs and without, and a mixed load through the scheduler.
//
//   gpu_figures_cuda --json=FILE [--tiny] [shape ...]
//
// Shares are of the ceilings measured in the same run: decode of the copy bandwidth, prefill of the
// rate of a large product. Times are medians of steps on the host's clock, sampling included.
// --tiny: small shapes and few steps, to see that all of it runs.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/random.h"
#include "engine_core/executor/graph_sizes.h"
#include "engine_core/executor/kv_cache_size.h"
#include "engine_core/executor/model_runner.h"
#include "engine_core/scheduler/scheduler.h"

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
  std::vector<std::string> shapes;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Rows of one table, written as JSON as well.
class Report {
 public:
  // `share` < 0: of nothing.
  void Add(const std::string& name, double value, const std::string& unit, double share = -1) {
    std::printf("%-46s %14.3f %-9s", name.c_str(), value, unit.c_str());
    if (share >= 0) std::printf(" %5.1f%%", 100 * share);
    std::printf("\n");
    std::fflush(stdout);
    rows_ += std::string(rows_.empty() ? "" : ",\n") + "  {\"name\": \"" + name +
             "\", \"value\": " + std::to_string(value) + ", \"unit\": \"" + unit + "\"" +
             (share >= 0 ? ", \"share\": " + std::to_string(share) : "") + "}";
  }
  bool Write(const std::string& path) const {
    std::ofstream out(path);
    out << "[\n" << rows_ << "\n]\n";
    return static_cast<bool>(out.flush());
  }

 private:
  std::string rows_;
};

std::unique_ptr<Backend> MakeBackend(const Options& options) {
  auto backend = MakeCudaBackend({.num_threads = options.is_tiny ? 1 : 4});
  CHECK(backend.ok()) << backend.status().ToString();
  return *std::move(backend);
}

// Median seconds of what `enqueue` puts before a mark.
template <class F>
double TimeOps(Backend& backend, int rounds, F enqueue) {
  enqueue();
  backend.WaitFor(backend.SetMark());
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const double begin = Now();
    enqueue();
    backend.WaitFor(backend.SetMark());
    times.push_back(Now() - begin);
  }
  return Median(times);
}

struct Ceilings {
  double bytes_per_second = 0;  // read and written
  double flops = 0;
};

OwnedTensor RandomMatrix(Backend& backend, int64_t rows, int64_t columns) {
  std::vector<Bf16> values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = ToBf16(static_cast<float>(UniformAt(1, i, 0) - 0.5));
  }
  return backend.Upload(Tensor(values.data(), DType::kBf16, {rows, columns}), DType::kBf16).value();
}

Ceilings MeasureCeilings(const Options& options, Report* report) {
  const std::unique_ptr<Backend> backend = MakeBackend(options);
  Ceilings ceilings;
  const int64_t copied = options.is_tiny ? int64_t{1} << 18 : int64_t{1} << 30;  // of 4 bytes
  {
    const OwnedTensor from = backend->Allocate(DType::kF32, {copied}).value();
    const OwnedTensor to = backend->Allocate(DType::kF32, {copied}).value();
    const double seconds = TimeOps(*backend, 10, [&] { backend->StartCopyIn(to, from); });
    ceilings.bytes_per_second = 8.0 * static_cast<double>(copied) / seconds;
  }
  report->Add("copy on the device, read and written", ceilings.bytes_per_second / 1e9, "GB/s");
  const int64_t n = options.is_tiny ? 48 : 8192;
  const OwnedTensor x = RandomMatrix(*backend, n, n);
  std::vector<Bf16> values(static_cast<size_t>(n * n));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = ToBf16(static_cast<float>(UniformAt(2, i, 0) - 0.5));
  }
  const Tensor blocks[] = {Tensor(values.data(), DType::kBf16, {n, n})};
  const auto weight = backend->Pack(blocks).value();
  const OwnedTensor out = backend->Allocate(DType::kBf16, {n, n}).value();
  const double seconds = TimeOps(*backend, 10, [&] { backend->Linear(out, x, *weight); });
  ceilings.flops = 2.0 * static_cast<double>(n) * static_cast<double>(n * n) / seconds;
  report->Add("bf16 product " + std::to_string(n) + "^3", ceilings.flops / 1e12, "TFLOP/s");
  return ceilings;
}

struct Bench {
  ModelConfig config;
  ExecutorLimits limits;
  std::unique_ptr<ModelRunner> runner;
};

Bench MakeBench(const Options& options, const ModelShape& shape, Report* report) {
  Bench bench;
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
  const auto weights = MakeDummyWeights(1);
  auto model = LoadModel({bench.config, ModelLimitsOf(bench.limits), *weights, *backend});
  CHECK(model.ok()) << model.status().ToString();
  report->Add(std::string(shape.name) + " weights made and loaded", Now() - begin, "s");
  auto runner = ModelRunner::CreateWithoutCache(std::move(backend), *std::move(model), bench.config,
                                                runner_options);
  CHECK(runner.ok()) << runner.status().ToString();
  bench.runner = *std::move(runner);
  CHECK(bench.runner->RunLargestStep().ok());
  const Status cache =
      bench.runner->AllocateKvCache(bench.limits.num_blocks, bench.limits.max_model_len);
  CHECK(cache.ok()) << cache.ToString();
  begin = Now();
  CHECK(bench.runner->CaptureGraphs().ok());
  report->Add(std::string(shape.name) + " " + std::to_string(bench.runner->num_graphs()) +
                  " graphs captured",
              Now() - begin, "s");
  return bench;
}

// Requests stepped by hand, with up to two steps in flight as the engine has.
class Steps {
 public:
  Steps(Bench* bench, int32_t num_requests, int32_t context)
      : bench_(bench), num_requests_(num_requests), context_(context) {
    params_.temperature = 0;
    params_.ignore_eos = true;
    params_.max_tokens = bench->limits.max_model_len;
    prompt_.assign(static_cast<size_t>(context), 5);
  }
  ~Steps() {
    SchedulerOutput last;
    for (int32_t r = 0; r < num_requests_; ++r) last.freed_slots.push_back(RequestSlot{r});
    CHECK(bench_->runner->Execute(last, &result_).ok());
  }

  // Of a whole prompt, or its last token. All requests read the same blocks: what is in them does
  // not matter here, and a cache of any size holds them.
  double Admit(int32_t new_tokens, int32_t room) {
    SchedulerOutput step;
    const int32_t num_blocks = (context_ + room + kBlockSize - 1) / kBlockSize;
    for (int32_t r = 0; r < num_requests_; ++r) {
      step.admitted.push_back({r, &id_, &params_, prompt_, context_});
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

  // Median seconds of a decode step of all requests.
  double Decode(int num_steps) {
    std::vector<double> times;
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
        CHECK(bench_->runner->Submit(step).ok());
      }
      if (i == 0) continue;
      CHECK(bench_->runner->Collect(&result_).ok());
      times.push_back(Now() - last);
      last = Now();
    }
    return Median(times);
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

// Bytes a decode step has to read.
double StepBytes(const ModelConfig& c, int32_t num_requests, int32_t context) {
  const double weights =
      2 * (BodyParameters(c) + static_cast<double>(c.vocab_size * c.hidden_size));
  const double kv = 4.0 * static_cast<double>(c.num_layers * c.num_kv_heads * c.head_dim);
  return weights + kv * num_requests * context;
}

void MeasureSteps(const Options& options, const ModelShape& shape, const Ceilings& ceilings,
                  Bench* bench, Report* report) {
  const std::string name(shape.name);
  const int num_steps = options.is_tiny ? 3 : 60;
  const std::vector<int32_t> batches =
      options.is_tiny ? std::vector<int32_t>{1, 3} : std::vector<int32_t>{1, 8, 32, 128, 256};
  for (const bool uses_graphs : {true, false}) {
    if (!uses_graphs) bench->runner->DropGraphs();
    for (const int32_t batch : batches) {
      const int32_t context = options.is_tiny ? 20 : 512;
      Steps steps(bench, batch, context);
      steps.Admit(1, num_steps + 8);
      steps.Decode(3);
      const double seconds = steps.Decode(num_steps);
      const double floor = StepBytes(bench->config, batch, context) / ceilings.bytes_per_second;
      report->Add(name + " decode B=" + std::to_string(batch) + " ctx " + std::to_string(context) +
                      (uses_graphs ? " graph" : " eager"),
                  seconds * 1e3, "ms", floor / seconds);
    }
  }
  const int32_t tokens = options.is_tiny ? 40 : 8192;
  std::vector<double> times;
  for (int i = 0; i < 4; ++i) times.push_back(Steps(bench, 1, tokens - 8).Admit(tokens - 8, 8));
  const double seconds = Median(times);
  const ModelConfig& c = bench->config;
  const double flops =
      (tokens - 8) * (2 * BodyParameters(c) +
                      2.0 * static_cast<double>(c.num_layers * c.num_heads * c.head_dim) * tokens);
  report->Add(name + " prefill of " + std::to_string(tokens - 8), seconds * 1e3, "ms",
              flops / ceilings.flops / seconds);
  CHECK(bench->runner->CaptureGraphs().ok());
}

// Requests with prompts and outputs of 100 to 1024 tokens, all there at once, through the
// scheduler.
void MeasureMixed(const Options& options, const ModelShape& shape, Bench* bench, Report* report) {
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
  const double begin = Now();
  for (;;) {
    const SchedulerOutput& step = scheduler.Schedule(Now());
    if (!step.empty() || !step.freed_slots.empty()) {
      CHECK(bench->runner->Submit(step).ok());
      in_flight.push_back(&step);
    }
    if (in_flight.empty()) break;
    if (!step.empty() && in_flight.size() < kMaxStepsInFlight) continue;
    CHECK(bench->runner->Collect(&result).ok());
    scheduler.Update(*in_flight.front(), &result, &outputs);
    in_flight.erase(in_flight.begin());
    messages.clear();
    outputs.Take(Now(), &messages);
    for (ClientMessage& message : messages) outputs.Recycle(std::move(message.outputs));
  }
  report->Add(
      std::string(shape.name) + " mixed load of " + std::to_string(num_requests) + " requests",
      static_cast<double>(num_tokens) / (Now() - begin), "tokens/s");
}

int Run(const Options& options) {
  Report report;
  const Ceilings ceilings = MeasureCeilings(options, &report);
  bool is_first = true;
  for (const std::string& name : options.shapes) {
    const ModelShape* shape = FindShape(name);
    if (shape == nullptr) {
      std::fprintf(stderr, "there is no shape %s\n", name.c_str());
      return 2;
    }
    Bench bench = MakeBench(options, *shape, &report);
    MeasureSteps(options, *shape, ceilings, &bench, &report);
    if (is_first) MeasureMixed(options, *shape, &bench, &report);
    is_first = false;
  }
  return report.Write(options.json) ? 0 : 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--json=")) {
      options.json = argument.substr(7);
    } else if (argument == "--tiny") {
      options.is_tiny = true;
    } else if (!argument.starts_with("--")) {
      options.shapes.push_back(argument);
    } else {
      std::fprintf(stderr, "unknown argument %s\n", argument.c_str());
      return 2;
    }
  }
  if (options.json.empty()) {
    std::fprintf(stderr, "where to? --json=FILE\n");
    return 2;
  }
  if (options.shapes.empty()) options.shapes = {"0.6b", "1b", "8b"};
  return tandem::Run(options);
}
