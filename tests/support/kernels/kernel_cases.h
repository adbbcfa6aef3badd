#pragma once

// Shared by the property tests over kernels: seeded numbers, tensors that own their memory, every
// cpu backend that this machine can run, and a runner that pushes sequences through the paged cache
// in any schedule. Thread: the test's.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace tandem {

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  int Int(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  float Normal() { return std::normal_distribution<float>()(engine_); }
  // Numbers that bf16 represents exactly, so that every backend computes with the same inputs.
  std::vector<float> Normals(int64_t count, float scale = 1) {
    std::vector<float> values(count);
    for (float& value : values) value = ToFloat(ToBf16(Normal() * scale));
    return values;
  }
  template <class T>
  void Shuffle(std::vector<T>* values) {
    std::shuffle(values->begin(), values->end(), engine_);
  }

 private:
  std::mt19937_64 engine_;
};

inline Tensor View(std::vector<float>& values, std::initializer_list<int64_t> shape) {
  return Tensor(values.data(), DType::kF32, shape);
}
inline Tensor View(std::vector<int32_t>& values, std::initializer_list<int64_t> shape) {
  return Tensor(values.data(), DType::kI32, shape);
}

inline OwnedTensor Upload(Backend& backend, const std::vector<float>& values,
                          std::initializer_list<int64_t> shape, DType dtype) {
  auto copy = values;
  return backend.device().Upload(View(copy, shape), dtype).value();
}
inline OwnedTensor UploadAct(Backend& backend, const std::vector<float>& values,
                             std::initializer_list<int64_t> shape) {
  return Upload(backend, values, shape, backend.activation_dtype());
}
inline OwnedTensor Make(Backend& backend, DType dtype, std::initializer_list<int64_t> shape) {
  return backend.device().Allocate(dtype, shape).value();
}
// Numbers that ops only read, in the backend's memory.
inline OwnedTensor UploadInts(Backend& backend, std::vector<int32_t> values,
                              std::initializer_list<int64_t> shape) {
  OwnedTensor result = Make(backend, DType::kI32, shape);
  backend.device().CopyIn(result, View(values, shape));
  return result;
}
inline std::unique_ptr<PackedMatrix> Pack(Backend& backend, std::vector<float> values, int64_t n,
                                          int64_t k, WeightFormat format = WeightFormat::kCompute) {
  const MatrixSource blocks[] = {View(values, {n, k})};
  return backend.Pack(blocks, format).value();
}
// The gate and the columns it multiplies as two row blocks of n / 2.
inline std::unique_ptr<PackedMatrix> PackGated(Backend& backend, std::vector<float> values,
                                               int64_t n, int64_t k) {
  const Tensor all = View(values, {n, k});
  const MatrixSource blocks[] = {all.Rows(0, n / 2), all.Rows(n / 2, n / 2)};
  return backend.PackGated(blocks).value();
}

struct FormatCase {
  const char* name;
  WeightFormat format;
};
inline constexpr FormatCase kIntegerFormats[] = {
    {"int8", WeightFormat::kInt8},
    {"int4 in groups of 32", WeightFormat::kInt4Group32},
    {"int4 in groups of 128", WeightFormat::kInt4Group128}};

// The numbers of a tensor in the backend's memory.
inline std::vector<float> Floats(Backend& backend, const Tensor& x) {
  std::vector<std::byte> raw(x.NumBytes());
  Tensor host(raw.data(), x.dtype, {x.rows(), x.RowSize()});
  Tensor flat = x;
  flat.rank = 2;
  flat.shape = {x.rows(), x.RowSize()};
  backend.device().CopyOut(host, flat);
  std::vector<float> values(x.NumElements());
  ConvertTensor(Tensor(values.data(), DType::kF32, {x.rows(), x.RowSize()}), host);
  return values;
}
inline std::vector<int32_t> Ints(Backend& backend, const Tensor& x) {
  std::vector<int32_t> values(x.NumElements());
  Tensor host = x;
  host.data = values.data();
  host.row_stride = host.RowSize();
  backend.device().CopyOut(host, x);
  return values;
}

// Largest |a - b| / (1 + |b|); infinity where one of them is NaN and the other is not.
inline float MaxError(const std::vector<float>& a, const std::vector<float>& b) {
  float worst = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const float error = std::abs(a[i] - b[i]) / (1 + std::abs(b[i]));
    worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
  }
  return worst;
}

// The mean of |a - b| / (1 + |b|).
inline double MeanError(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < b.size(); ++i) sum += std::abs(a[i] - b[i]) / (1 + std::abs(b[i]));
  return sum / static_cast<double>(b.size());
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// A backend under test against the reference.
struct BackendCase {
  std::string name;
  DType dtype;  // compute type
  std::function<std::unique_ptr<Backend>(int num_threads)> make;
  // Weights of integers, KV caches of int4 and latents of int8.
  bool has_int8 = true;
  bool is_scalar = false;  // slow: tests run less work on it

  // Covers one rounding to the compute type and another order of a float32 sum.
  float tolerance() const { return dtype == DType::kBf16 ? 1e-2f : 2e-5f; }
};

// The backends of the test program: cpu_cases.cc (every instruction set of this machine, in both
// compute types) or emulated_cuda_cases.cc.
std::vector<BackendCase> BackendCases();

struct AttentionModel {
  AttentionShape shape;
  AttentionOptions options;
  int rotary_dim = 0;
  bool qk_norm = false;
  bool is_latent = false;  // a row is q and the latent, whose pe is rotary_dim numbers
  bool is_interleaved = true;
  bool norms_after_rope = false;
  bool has_sinks = false;
  bool has_slopes = false;
  bool has_q_scale = false;
  int block_size = 32;
  KvFormat kv_format = KvFormat::kCompute;
  float k_scale = 1, v_scale = 1;  // of kFloat8
  std::vector<float> cos, sin, q_norm, k_norm, q_scale;
  std::vector<float> sinks, slopes;  // of more heads than any shape has
  // A text of this many tokens, then an image of as many, whose tokens see each other, etc.; 0: no
  // images. Steps contain whole images.
  int run_size = 0;
  bool has_rope_rows = false;  // the tables are upside down, and rows say where a position is

  // AttentionOptions::last_seen of a token.
  int32_t LastSeen(int32_t position, int32_t length) const {
    const int32_t run = position / run_size;
    return run % 2 == 0 ? 0 : std::min((run + 1) * run_size, length) - 1;
  }

  static AttentionModel Random(Draw& draw, int max_positions);
  static AttentionModel RandomLatent(Draw& draw, int max_positions);
  int64_t qkv_size() const {
    const int others = is_latent ? 1 : 2 * shape.num_kv_heads;
    return int64_t{shape.num_heads + others} * shape.head_dim;
  }
  int64_t q_size() const { return int64_t{shape.num_heads} * shape.head_dim; }
};

inline AttentionModel AttentionModel::Random(Draw& draw, int max_positions) {
  AttentionModel model;
  const int dims[] = {16, 32, 64, 128, 48, 20, 72, 80};  // the last two: of towers
  const int groups[] = {1, 2, 3, 4, 7, 8};
  model.shape.num_kv_heads = draw.Int(1, 3);
  model.shape.num_heads = model.shape.num_kv_heads * groups[draw.Int(0, 5)];
  model.shape.head_dim = dims[draw.Int(0, 7)];
  model.rotary_dim = draw.Int(0, 3) == 0 ? model.shape.head_dim / 4 * 2 : model.shape.head_dim;
  model.qk_norm = draw.Int(0, 1) == 1;
  model.block_size = 32 * draw.Int(1, 3);
  model.options.scale = 1 / std::sqrt(static_cast<float>(model.shape.head_dim));
  if (draw.Int(0, 2) == 0) model.options.sliding_window = draw.Int(1, 150);
  if (draw.Int(0, 2) == 0) model.options.soft_cap = 5;
  const int half = model.rotary_dim / 2;
  for (int p = 0; p < max_positions; ++p) {
    for (int i = 0; i < half; ++i) {
      const double angle = p / std::pow(10000.0, static_cast<double>(i) / half);
      model.cos.push_back(static_cast<float>(std::cos(angle)));
      model.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  model.q_norm = draw.Normals(model.shape.head_dim);
  model.k_norm = draw.Normals(model.shape.head_dim);
  constexpr int kMostHeads = 64;
  model.norms_after_rope = draw.Int(0, 2) == 0;
  model.is_interleaved = draw.Int(0, 2) == 0;
  model.has_sinks = draw.Int(0, 2) == 0;
  model.has_slopes = draw.Int(0, 3) == 0;
  model.has_q_scale = draw.Int(0, 3) == 0;
  if (model.options.sliding_window == 0 && draw.Int(0, 2) == 0) {
    model.options.chunk = draw.Int(1, 150);
  }
  model.sinks = draw.Normals(kMostHeads, 2);
  model.slopes = draw.Normals(kMostHeads, 0.02f);
  model.q_scale = draw.Normals(std::max(max_positions, 1));
  return model;
}

inline AttentionModel AttentionModel::RandomLatent(Draw& draw, int max_positions) {
  AttentionModel model = Random(draw, max_positions);
  const int heads[] = {1, 3, 4, 16, 37, 40};
  model.is_latent = true;
  model.is_interleaved = draw.Int(0, 3) > 0;
  model.qk_norm = false;
  model.shape.num_kv_heads = 1;
  model.shape.num_heads = heads[draw.Int(0, 5)];
  return model;
}

// Pushes whole sequences through QkNormRopeWriteKv and PagedAttention of one backend.
class AttentionRun {
 public:
  // qkv[r]: the merged rows of request r, one per token.
  AttentionRun(Backend& backend, const AttentionModel& model,
               const std::vector<std::vector<float>>& qkv, Draw& draw)
      : backend_(backend), model_(model), qkv_(qkv) {
    const int half = model.rotary_dim / 2;
    const int64_t positions = half == 0 ? 1 : static_cast<int64_t>(model.cos.size()) / half;
    if (half > 0) {
      cos_ = Upload(backend, OrUpsideDown(model.cos, half), {positions, half}, DType::kF32);
      sin_ = Upload(backend, OrUpsideDown(model.sin, half), {positions, half}, DType::kF32);
    }
    if (model.qk_norm) {
      q_norm_ = Upload(backend, model.q_norm, {model.shape.head_dim}, DType::kF32);
      k_norm_ = Upload(backend, model.k_norm, {model.shape.head_dim}, DType::kF32);
    }
    const int num_heads = model.shape.num_heads;
    const auto of_heads = [&](const std::vector<float>& numbers) {
      return Upload(backend, {numbers.begin(), numbers.begin() + num_heads}, {num_heads},
                    DType::kF32);
    };
    sinks_ = of_heads(model.sinks);
    slopes_ = of_heads(model.slopes);
    q_scale_ =
        Upload(backend, model.q_scale, {static_cast<int64_t>(model.q_scale.size())}, DType::kF32);

    int num_blocks = 1;
    for (const auto& rows : qkv) {
      max_blocks_ = std::max<int>(max_blocks_, BlocksFor(rows));
      num_blocks += BlocksFor(rows);
      outputs_.emplace_back(rows.size() / model.qkv_size() * model.q_size());
      num_done_.push_back(0);
    }
    std::vector<int32_t> ids(num_blocks - 1);
    std::iota(ids.begin(), ids.end(), 1);
    draw.Shuffle(&ids);
    size_t next = 0;
    for (const auto& rows : qkv) {
      std::vector<int32_t> blocks(max_blocks_, 0);
      for (int i = 0; i < BlocksFor(rows); ++i) blocks[i] = ids[next++];
      blocks_.push_back(blocks);
    }
    cache_ = backend
                 .AllocateKvCache({.num_layers = 2,
                                   .num_kv_heads = model.shape.num_kv_heads,
                                   .head_dim = model.shape.head_dim,
                                   .block_size = model.block_size,
                                   .num_blocks = num_blocks,
                                   .format = model.kv_format,
                                   .is_latent = model.is_latent})
                 .value();
    plan_ = backend.MakeAttentionPlan(model.shape, 4096, 64).value();
    Poison(num_blocks);
  }

  // One step: (request, number of its next tokens) in batch order.
  void Step(const std::vector<std::pair<int, int>>& scheduled) {
    std::vector<float> rows;
    std::vector<int32_t> query_start = {0}, context_len, positions, slots, table;
    for (auto [r, count] : scheduled) {
      for (int i = 0; i < count; ++i) {
        const int position = num_done_[r] + i;
        const float* row = qkv_[r].data() + position * model_.qkv_size();
        rows.insert(rows.end(), row, row + model_.qkv_size());
        positions.push_back(position);
        slots.push_back(blocks_[r][position / model_.block_size] * model_.block_size +
                        position % model_.block_size);
      }
      query_start.push_back(static_cast<int32_t>(positions.size()));
      context_len.push_back(num_done_[r] + count);
      table.insert(table.end(), blocks_[r].begin(), blocks_[r].end());
    }
    const std::vector<float> out = Execute(rows, query_start, context_len, positions, slots, table);
    const float* next = out.data();
    for (auto [r, count] : scheduled) {
      std::copy_n(next, count * model_.q_size(),
                  outputs_[r].begin() + num_done_[r] * model_.q_size());
      next += count * model_.q_size();
      num_done_[r] += count;
    }
  }

  // Steps of random requests and chunk sizes until every token has run.
  void RunRandomly(Draw& draw) {
    for (;;) {
      std::vector<std::pair<int, int>> scheduled;
      std::vector<int> order(qkv_.size());
      std::iota(order.begin(), order.end(), 0);
      draw.Shuffle(&order);
      for (int r : order) {
        const int left = length(r) - num_done_[r];
        if (left == 0 || draw.Int(0, 3) == 0) continue;
        const int most = draw.Int(0, 1) == 0 ? 3 : left;
        scheduled.emplace_back(r, draw.Int(1, std::min(left, most)));
      }
      if (!scheduled.empty()) Step(scheduled);
      bool done = true;
      for (size_t r = 0; r < qkv_.size(); ++r) done &= num_done_[r] == length(static_cast<int>(r));
      if (done) return;
    }
  }

  void RunAtOnce() {
    std::vector<std::pair<int, int>> scheduled;
    for (int r = 0; r < static_cast<int>(qkv_.size()); ++r) scheduled.emplace_back(r, length(r));
    Step(scheduled);
  }

  int length(int r) const { return static_cast<int>(qkv_[r].size() / model_.qkv_size()); }
  const std::vector<float>& output(int r) const { return outputs_[r]; }

 private:
  std::vector<float> OrUpsideDown(const std::vector<float>& table, int half) const {
    if (!model_.has_rope_rows) return table;
    std::vector<float> turned;
    for (auto end = table.end(); end != table.begin(); end -= half) {
      turned.insert(turned.end(), end - half, end);
    }
    return turned;
  }

  int BlocksFor(const std::vector<float>& rows) const {
    const int64_t tokens = static_cast<int64_t>(rows.size()) / model_.qkv_size();
    return static_cast<int>((tokens + model_.block_size - 1) / model_.block_size);
  }

  // Writes NaN to every slot, so that a read of an earlier owner's data shows. Between a head's end
  // and that of its place there may be bytes of another group's block.
  void Poison(int num_blocks) {
    if (backend_.device().memory_is_host()) {
      std::memset(cache_->layer(0).k, 0xff, static_cast<size_t>(cache_->num_bytes()));
    }
    const int tokens = num_blocks * model_.block_size;
    std::vector<int32_t> positions(tokens), slots(tokens), table(num_blocks);
    std::iota(slots.begin(), slots.end(), 0);
    std::iota(table.begin(), table.end(), 0);
    std::vector<float> rows(tokens * model_.qkv_size(), NAN);
    Execute(rows, {0, tokens}, {tokens}, positions, slots, table, false);
  }

  std::vector<float> Execute(std::vector<float>& rows, const std::vector<int32_t>& query_start,
                             const std::vector<int32_t>& context_len,
                             std::vector<int32_t>& positions, std::vector<int32_t>& slots,
                             std::vector<int32_t>& table, bool attend = true) {
    const auto tokens = static_cast<int64_t>(positions.size());
    const auto requests = static_cast<int64_t>(context_len.size());
    const OwnedTensor device_positions = UploadInts(backend_, positions, {tokens});
    const OwnedTensor device_slots = UploadInts(backend_, slots, {tokens});
    const OwnedTensor device_table =
        UploadInts(backend_, table, {requests, static_cast<int64_t>(table.size()) / requests});
    AttentionBatch batch;
    std::vector<int32_t> host_query_start = query_start, host_context_len = context_len;
    batch.query_start = host_query_start;
    batch.context_len = host_context_len;
    batch.positions = device_positions;
    batch.slot_mapping = device_slots;
    batch.block_table = device_table;
    plan_->Fill(batch);
    // A caller may overwrite these with the next step's numbers.
    std::ranges::fill(host_query_start, -1);
    std::ranges::fill(host_context_len, -1);
    QkRope rope;
    rope.cos = cos_;
    rope.sin = sin_;
    rope.rotary_dim = model_.rotary_dim;
    if (model_.qk_norm) {
      rope.q_norm = q_norm_;
      rope.k_norm = k_norm_;
    }
    rope.norms_after_rope = model_.norms_after_rope;
    rope.is_interleaved = model_.is_interleaved;
    if (model_.has_q_scale) rope.q_scale = q_scale_;
    std::vector<int32_t> rows_of_table, last_seen;
    const auto last_row = static_cast<int32_t>(rope.cos.rows()) - 1;
    for (size_t r = 0; r < context_len.size(); ++r) {
      for (int32_t t = query_start[r]; t < query_start[r + 1]; ++t) {
        const int32_t position = positions[static_cast<size_t>(t)];
        rows_of_table.push_back(last_row - position);
        if (model_.run_size > 0) last_seen.push_back(model_.LastSeen(position, context_len[r]));
      }
    }
    const OwnedTensor device_rows = UploadInts(backend_, rows_of_table, {tokens});
    OwnedTensor device_last_seen;
    if (!last_seen.empty()) device_last_seen = UploadInts(backend_, last_seen, {tokens});
    if (model_.has_rope_rows && model_.rotary_dim > 0) rope.rows = device_rows;
    AttentionOptions options = model_.options;
    options.last_seen = device_last_seen;
    if (model_.has_sinks) options.sinks = sinks_;
    if (model_.has_slopes) options.slopes = slopes_;
    const OwnedTensor qkv = UploadAct(backend_, rows, {tokens, model_.qkv_size()});
    const OwnedTensor q = Make(backend_, backend_.activation_dtype(), {tokens, model_.q_size()});
    const OwnedTensor out = Make(backend_, backend_.activation_dtype(), {tokens, model_.q_size()});
    LayerKv kv = cache_->layer(1);
    kv.k_scale = model_.k_scale;
    kv.v_scale = model_.v_scale;
    if (model_.is_latent) {
      WriteLatent(q, qkv, kv);
    } else {
      backend_.ops().QkNormRopeWriteKv(q, qkv, rope, kv, *plan_);
      // q once more, alone: the cache stays as it is.
      const OwnedTensor alone =
          Make(backend_, backend_.activation_dtype(), {tokens, model_.q_size()});
      backend_.ops().Convert(alone, qkv.view().Columns(0, model_.q_size()));
      rope.is_of_q_alone = true;
      backend_.ops().QkNormRopeWriteKv(q, alone, rope, kv, *plan_);
    }
    if (attend) backend_.ops().PagedAttention(out, q, kv, options, *plan_);
    return Floats(backend_, out);
  }

  // q of the rows, with its pe rotated, and their latent.
  void WriteLatent(const Tensor& q, const Tensor& rows, const LayerKv& kv) {
    const int dim = model_.shape.head_dim, pe_dim = model_.rotary_dim;
    const OwnedTensor norm = Upload(backend_, {model_.k_norm.begin(), model_.k_norm.end() - pe_dim},
                                    {dim - pe_dim}, DType::kF32);
    const Tensor from = rows.Columns(0, model_.q_size());
    backend_.ops().Convert(q, from);
    backend_.ops().LatentRopeWriteKv(q, from, rows.Columns(model_.q_size(), dim),
                                     {.cos = cos_,
                                      .sin = sin_,
                                      .pe_dim = pe_dim,
                                      .norm = norm,
                                      .is_interleaved = model_.is_interleaved},
                                     kv, *plan_);
  }

  Backend& backend_;
  const AttentionModel& model_;
  const std::vector<std::vector<float>>& qkv_;
  OwnedTensor cos_, sin_, q_norm_, k_norm_, sinks_, slopes_, q_scale_;
  int max_blocks_ = 0;
  std::vector<std::vector<int32_t>> blocks_;
  std::vector<std::vector<float>> outputs_;
  std::vector<int> num_done_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<AttentionPlan> plan_;
};

}  // namespace tandem
