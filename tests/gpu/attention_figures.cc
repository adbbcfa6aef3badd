#include "tests/gpu/attention_figures.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "common/random.h"

namespace tandem {
namespace {

constexpr int kBlockSize = 16;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One layer and some requests of equal length over a cache of random numbers.
class Layer {
 public:
  Layer(Backend* backend, const AttentionShape& shape, int64_t num_requests, int64_t length)
      : backend_(*backend), shape_(shape), num_requests_(num_requests), length_(length) {
    const int64_t blocks = (length + kBlockSize - 1) / kBlockSize;
    cache_ = backend_
                 .AllocateKvCache({.num_layers = 1,
                                   .num_kv_heads = shape.num_kv_heads,
                                   .head_dim = shape.head_dim,
                                   .block_size = kBlockSize,
                                   .num_blocks = num_requests * blocks})
                 .value();
    // Neighbouring blocks of a request are not neighbours in memory.
    std::vector<int32_t> table(static_cast<size_t>(num_requests * blocks));
    for (size_t i = 0; i < table.size(); ++i) {
      const int64_t request = static_cast<int64_t>(i) / blocks,
                    block = static_cast<int64_t>(i) % blocks;
      table[i] = static_cast<int32_t>(block * num_requests + request);
    }
    table_ = Ints(std::move(table), {num_requests, blocks});
    plan_ = backend_.MakeAttentionPlan(shape, std::max(length, num_requests), num_requests).value();
    const OwnedTensor qkv =
        Random(length, q_size() + int64_t{2} * shape.num_kv_heads * shape.head_dim);
    for (int64_t r = 0; r < num_requests; ++r) Fill(qkv, r * blocks * kBlockSize);
  }

  // Median seconds of attention of each request's last tokens, several in a row.
  double Time(int64_t num_queries, int rounds) {
    const int64_t num_tokens = num_requests_ * num_queries;
    const OwnedTensor q = Random(num_tokens, q_size()), out = Acts(num_tokens, q_size());
    const OwnedTensor numbers =
        Ints(std::vector<int32_t>(static_cast<size_t>(num_tokens)), {num_tokens});
    Plan(numbers, num_requests_, num_queries, static_cast<int32_t>(length_), table_);
    const AttentionOptions options = {.scale = 0.088f, .is_bidirectional = shape_.is_bidirectional};
    std::vector<double> times;
    constexpr int kInARow = 4;
    for (int i = 0; i <= rounds; ++i) {
      const double begin = Now();
      for (int call = 0; call < kInARow; ++call) {
        backend_.ops().PagedAttention(out, q, cache_->layer(0), options, *plan_);
      }
      backend_.device().WaitFor(backend_.device().SetMark());
      if (i > 0) times.push_back((Now() - begin) / kInARow);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  int64_t q_size() const { return int64_t{shape_.num_heads} * shape_.head_dim; }
  OwnedTensor Acts(int64_t rows, int64_t columns) {
    return backend_.device().Allocate(backend_.activation_dtype(), {rows, columns}).value();
  }
  OwnedTensor Random(int64_t rows, int64_t columns) {
    std::vector<Bf16> values(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = ToBf16(static_cast<float>(UniformAt(3, i, 0) - 0.5));
    }
    return backend_.device()
        .Upload(Tensor(values.data(), DType::kBf16, {rows, columns}), backend_.activation_dtype())
        .value();
  }
  OwnedTensor Ints(std::vector<int32_t> values, std::initializer_list<int64_t> shape) {
    OwnedTensor result = backend_.device().Allocate(DType::kI32, shape).value();
    backend_.device().CopyIn(result, Tensor(values.data(), DType::kI32, shape));
    return result;
  }

  void Plan(const Tensor& numbers, int64_t num_requests, int64_t num_queries, int32_t context_len,
            const Tensor& table) {
    query_start_.assign(1, 0);
    for (int64_t r = 1; r <= num_requests; ++r) {
      query_start_.push_back(static_cast<int32_t>(r * num_queries));
    }
    context_len_.assign(static_cast<size_t>(num_requests), context_len);
    AttentionBatch batch;
    batch.query_start = query_start_;
    batch.context_len = context_len_;
    batch.positions = batch.slot_mapping = numbers;
    batch.block_table = table;
    plan_->Fill(batch);
  }

  // One request's slots, from `first` on.
  void Fill(const Tensor& qkv, int64_t first) {
    std::vector<int32_t> slots(static_cast<size_t>(length_));
    std::iota(slots.begin(), slots.end(), static_cast<int32_t>(first));
    const OwnedTensor numbers = Ints(std::move(slots), {length_});
    Plan(numbers, 1, length_, static_cast<int32_t>(length_), table_.view().Rows(0, 1));
    const OwnedTensor q = Acts(length_, q_size());
    backend_.ops().QkNormRopeWriteKv(q, qkv, {}, cache_->layer(0), *plan_);
    backend_.device().WaitFor(backend_.device().SetMark());
  }

  Backend& backend_;
  AttentionShape shape_;
  int64_t num_requests_;
  int64_t length_;
  OwnedTensor table_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<AttentionPlan> plan_;
  std::vector<int32_t> query_start_, context_len_;
};

}  // namespace

AttentionFigures MeasureAttention(Backend* backend, bool is_tiny) {
  const AttentionShape shape = is_tiny ? AttentionShape{4, 2, 64} : AttentionShape{32, 8, 128};
  const int rounds = is_tiny ? 1 : 20;
  AttentionFigures figures;
  const std::vector<std::pair<int64_t, int64_t>> batches =
      is_tiny ? std::vector<std::pair<int64_t, int64_t>>{{2, 40}}
              : std::vector<std::pair<int64_t, int64_t>>{{1, 512}, {32, 512}, {32, 2048}};
  for (const auto& [num_requests, length] : batches) {
    figures.decodes.push_back(
        {.num_requests = num_requests,
         .context = length,
         .seconds = Layer(backend, shape, num_requests, length).Time(1, rounds),
         .bytes = 4.0 * static_cast<double>(num_requests * length) *
                  static_cast<double>(shape.num_kv_heads * shape.head_dim)});
  }
  const int64_t length = is_tiny ? 24 : 4096;
  figures.prefill_seconds = Layer(backend, shape, 1, length).Time(length, rounds);
  figures.prefill_flops = 2.0 * static_cast<double>(length * length) *
                          static_cast<double>(shape.num_heads * shape.head_dim);
  const AttentionShape tower = {
      .num_heads = 16, .num_kv_heads = 16, .head_dim = 72, .is_bidirectional = true};
  figures.tower_seconds = Layer(backend, tower, 1, length).Time(length, rounds);
  figures.tower_flops = 4.0 * static_cast<double>(length * length) *
                        static_cast<double>(tower.num_heads * tower.head_dim);
  return figures;
}

}  // namespace tandem
