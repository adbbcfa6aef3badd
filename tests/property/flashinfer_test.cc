// The cuda backend's attention by FlashInfer against the reference: on a device FlashInfer's
// kernels, on the emulated one plain loops over the same plan, pages and places.

#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr float kTolerance = 0.05f;  // bf16, split contexts rounded once more

std::unique_ptr<Backend> MakeFlashInferBackend() {
  return MakeEmulatedCudaBackend(
             {.dtype = DType::kBf16, .num_threads = 1, .attention = AttentionBackend::kFlashInfer})
      .value();
}

// Heads that FlashInfer has kernels for.
AttentionModel RandomModel(Draw& draw, int max_positions) {
  const int head_dims[] = {64, 128, 256}, groups[] = {1, 2, 3, 4, 5, 7, 8};
  const int block_sizes[] = {1, 16, 24, 32};
  AttentionModel model = AttentionModel::Random(draw, max_positions);
  model.shape.num_kv_heads = draw.Int(1, 2);
  model.shape.num_heads = model.shape.num_kv_heads * groups[draw.Int(0, 6)];
  model.shape.head_dim = head_dims[draw.Int(0, 2)];
  model.rotary_dim = 0;
  model.qk_norm = false;
  model.has_sinks = model.has_slopes = false;  // which FlashInfer is not asked for
  model.options.chunk = 0;
  model.q_norm = model.k_norm = draw.Normals(model.shape.head_dim);
  model.block_size = block_sizes[draw.Int(0, 3)];
  model.options.scale = 1 / std::sqrt(static_cast<float>(model.shape.head_dim));
  return model;
}

// Single tokens of R requests over a filled cache, planned into memory at a fixed address.
class DecodeSteps {
 public:
  static constexpr int64_t kNumRequests = 3, kTableColumns = 30;
  static constexpr int kBlockSize = 16;

  DecodeSteps(Backend& backend, const AttentionShape& shape, Draw draw)
      : backend_(backend), shape_(shape) {
    const int64_t num_blocks = kNumRequests * kTableColumns;
    std::vector<int32_t> table(num_blocks);
    std::iota(table.begin(), table.end(), 0);
    draw.Shuffle(&table);
    table_ = UploadInts(backend, table, {kNumRequests, kTableColumns});
    q_numbers_ = draw.Normals(kNumRequests * q_size());
    q_ = UploadAct(backend, q_numbers_, {kNumRequests, q_size()});
    out_ = Make(backend, backend.activation_dtype(), {kNumRequests, q_size()});
    cache_ = backend
                 .AllocateKvCache({.num_layers = 1,
                                   .num_kv_heads = shape.num_kv_heads,
                                   .head_dim = shape.head_dim,
                                   .block_size = kBlockSize,
                                   .num_blocks = num_blocks})
                 .value();
    plan_ = backend.MakeAttentionPlan(shape, num_blocks * kBlockSize, kNumRequests).value();
    FillCache(draw, static_cast<int32_t>(num_blocks * kBlockSize));
    const int64_t words = plan_->WorkSize(kNumRequests, kNumRequests);
    if (words > 0) {
      host_work_ = backend.device().AllocateStaging(DType::kI32, {words}).value();
      work_ = Make(backend, DType::kI32, {words});
    }
    numbers_ = UploadInts(backend, std::vector<int32_t>(kNumRequests), {kNumRequests});
  }

  void Plan(const std::vector<int32_t>& context_len) {
    context_len_ = context_len;
    AttentionBatch batch;
    batch.query_start = query_start_;
    batch.context_len = context_len_;
    batch.positions = batch.slot_mapping = numbers_;
    batch.block_table = table_;
    if (!work_.view().empty()) {
      batch.host_work = host_work_;
      batch.work = work_;
    }
    plan_->Fill(batch);
    if (!work_.view().empty()) backend_.device().StartCopyIn(work_, host_work_);
  }
  void Attend() {
    backend_.ops().PagedAttention(out_, q_, cache_->layer(0), {.scale = 0.1f}, *plan_);
  }
  std::vector<float> out() { return Floats(backend_, out_); }

  // The same from rows with `gap` more columns, of which `first` come before them.
  void AttendFrom(int64_t first, int64_t gap, const AttentionOptions& options) {
    const int64_t width = first + q_size() + gap;
    std::vector<float> wide(static_cast<size_t>(kNumRequests * width));
    for (int64_t r = 0; r < kNumRequests; ++r) {
      std::copy_n(q_numbers_.begin() + r * q_size(), q_size(), wide.begin() + r * width + first);
    }
    const OwnedTensor q = UploadAct(backend_, wide, {kNumRequests, width});
    backend_.ops().PagedAttention(out_, q.view().Columns(first, q_size()), cache_->layer(0),
                                  options, *plan_);
    out();  // waits, before q goes away
  }
  // And to such rows.
  std::vector<float> AttendInto(int64_t first, int64_t gap) {
    const int64_t width = first + q_size() + gap;
    const std::vector<float> wide(static_cast<size_t>(kNumRequests * width), 7.0f);
    const OwnedTensor out = UploadAct(backend_, wide, {kNumRequests, width});
    backend_.ops().PagedAttention(out.view().Columns(first, q_size()), q_, cache_->layer(0),
                                  {.scale = 0.1f}, *plan_);
    return Floats(backend_, out);
  }

 private:
  int64_t q_size() const { return int64_t{shape_.num_heads} * shape_.head_dim; }
  void FillCache(Draw& draw, int32_t num_slots) {
    const int64_t qkv_size = q_size() + int64_t{2} * shape_.num_kv_heads * shape_.head_dim;
    std::vector<int32_t> slots(num_slots);
    std::iota(slots.begin(), slots.end(), 0);
    const std::vector<int32_t> query_start = {0, num_slots}, context_len = {num_slots};
    const OwnedTensor device_slots = UploadInts(backend_, slots, {num_slots});
    AttentionBatch batch;
    batch.query_start = query_start;
    batch.context_len = context_len;
    batch.positions = batch.slot_mapping = device_slots;
    const OwnedTensor table = UploadInts(backend_, {0}, {1, 1});
    batch.block_table = table;
    plan_->Fill(batch);
    const OwnedTensor q = Make(backend_, backend_.activation_dtype(), {num_slots, q_size()});
    backend_.ops().QkNormRopeWriteKv(
        q, UploadAct(backend_, draw.Normals(num_slots * qkv_size), {num_slots, qkv_size}), {},
        cache_->layer(0), *plan_);
    Floats(backend_, q);  // waits, before the inputs go away
  }

  Backend& backend_;
  AttentionShape shape_;
  std::vector<int32_t> query_start_ = {0, 1, 2, 3}, context_len_;
  std::vector<float> q_numbers_;
  OwnedTensor table_, q_, out_, host_work_, work_, numbers_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<AttentionPlan> plan_;
};

// Requests of both kinds and any length, in any order, step by step.
template <class Schedule>
void CheckEqualsReference(int num_seeds, int max_length, Schedule schedule) {
  if (!HasEmulatedFlashInfer()) {
    WARN("SKIPPED: this build has no FlashInfer");
    return;
  }
  const auto reference = MakeReferenceBackend();
  const auto cuda = MakeFlashInferBackend();
  for (int seed = 1; seed <= num_seeds; ++seed) {
    Draw draw(seed);
    const AttentionModel model = RandomModel(draw, max_length);
    CAPTURE(seed, model.shape.num_heads, model.shape.num_kv_heads, model.shape.head_dim,
            model.block_size, model.options.sliding_window, model.options.soft_cap);
    std::vector<std::vector<float>> qkv;
    for (int r = 0; r < 4; ++r) {
      qkv.push_back(draw.Normals(draw.Int(4, max_length) * model.qkv_size()));
    }
    AttentionRun expected(*reference, model, qkv, draw);
    expected.RunAtOnce();
    AttentionRun ours(*cuda, model, qkv, draw);
    schedule(ours, draw);
    for (int r = 0; r < 4; ++r) {
      CHECK(MaxError(ours.output(r), expected.output(r)) < kTolerance);
    }
  }
}

}  // namespace

TEST_CASE("FlashInfer: any schedule equals the reference") {
  CheckEqualsReference(12, 220, [](AttentionRun& run, Draw& draw) { run.RunRandomly(draw); });
}

TEST_CASE("FlashInfer: single tokens before, between and after prompts equal the reference") {
  CheckEqualsReference(8, 300, [](AttentionRun& run, Draw&) {
    run.Step({{0, run.length(0) - 3}, {1, run.length(1) - 2}});
    run.Step({{0, 1}, {1, 1}, {2, run.length(2) - 1}});
    run.Step({{3, run.length(3) - 2}, {0, 1}});
    run.Step({{2, 1}, {3, 1}, {0, 1}});
    run.Step({{3, 1}, {1, 1}});
  });
}

TEST_CASE("FlashInfer: long contexts are cut into chunks and joined") {
  CheckEqualsReference(3, 500, [](AttentionRun& run, Draw&) {
    for (int r = 0; r < 4; ++r) run.Step({{r, run.length(r) - 3}});
    run.Step({{0, 1}});
    run.Step({{2, 2}, {1, 2}});
    run.Step({{3, 1}, {0, 1}});
    run.Step({{0, 1}, {1, 1}, {2, 1}, {3, 2}});
  });
}

TEST_CASE("FlashInfer: a captured decode step fits any contexts") {
  if (!HasEmulatedFlashInfer()) {
    WARN("SKIPPED: this build has no FlashInfer");
    return;
  }
  const auto reference = MakeReferenceBackend();
  const auto cuda = MakeFlashInferBackend();
  // The second one has too many heads per KV head for the decode kernel.
  for (const AttentionShape& shape : {AttentionShape{4, 2, 64}, AttentionShape{7, 1, 128}}) {
    CAPTURE(shape.num_heads, shape.head_dim);
    DecodeSteps expected(*reference, shape, Draw(3)), ours(*cuda, shape, Draw(3));
    ours.Plan({1, 1, 1});
    ours.Attend();
    cuda->device().BeginCapture();
    ours.Attend();
    const auto captured = cuda->device().EndCapture().value();
    for (const std::vector<int32_t>& context_len : std::vector<std::vector<int32_t>>{
             {1, 1, 1}, {480, 3, 130}, {16, 17, 15}, {300, 479, 480}, {129, 128, 2}}) {
      CAPTURE(context_len);
      expected.Plan(context_len);
      expected.Attend();
      ours.Plan(context_len);
      cuda->device().Replay(*captured);
      CHECK(MaxError(ours.out(), expected.out()) < kTolerance);
    }
  }
}

TEST_CASE("FlashInfer: strided rows, and rows that its kernels cannot load") {
  if (!HasEmulatedFlashInfer()) {
    WARN("SKIPPED: this build has no FlashInfer");
    return;
  }
  const auto reference = MakeReferenceBackend();
  const auto cuda = MakeFlashInferBackend();
  // Heads for its decode kernel, for its prefill kernel, and for several items of our own.
  for (const AttentionShape& shape : {AttentionShape{4, 2, 64}, {7, 1, 128}, {12, 1, 64}}) {
    CAPTURE(shape.num_heads, shape.head_dim);
    DecodeSteps expected(*reference, shape, Draw(4)), ours(*cuda, shape, Draw(4));
    for (DecodeSteps* steps : {&expected, &ours}) steps->Plan({200, 3, 130});
    for (const auto& [first, gap] : {std::pair{0, 0}, {0, 8}, {8, 8}, {0, 1}, {1, 7}}) {
      CAPTURE(first, gap);
      for (const int32_t window : {0, 40}) {
        CAPTURE(window);
        const AttentionOptions options = {.scale = 0.1f, .sliding_window = window};
        expected.AttendFrom(first, gap, options);
        ours.AttendFrom(first, gap, options);
        CHECK(MaxError(ours.out(), expected.out()) < kTolerance);
      }
      CHECK(MaxError(ours.AttendInto(first, gap), expected.AttendInto(first, gap)) < kTolerance);
    }
  }
}

}  // namespace tandem
