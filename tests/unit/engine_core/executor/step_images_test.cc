// Rows, positions and last keys of steps with images, over a tower that only counts.

#include "engine_core/executor/step_images.h"

#include <cmath>
#include <numeric>

#include "engine_core/executor/mrope_positions.h"
#include "kernels/backend.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int64_t kHidden = 3;

// Row i of an image has 100 * its first pixel + i in all columns of the embedding, and 0.5 more in
// those of two deeper levels.
class CountingTower final : public VisionTower {
 public:
  CountingTower(int* num_encoded, int* num_rows) : num_encoded_(num_encoded), num_rows_(num_rows) {}
  Status Check(const ImagePatches& image) const override {
    return image.grid_h == 99 ? InvalidArgumentError("not this one") : OkStatus();
  }
  int64_t NumTokens(const ImagePatches& image) const override {
    return image.grid_h * image.grid_w / 4;
  }
  int64_t num_columns() const override { return 3 * kHidden; }
  // Row by row.
  StatusOr<TowerWork> Begin(const ImagePatches& image, const Tensor& out) override {
    ++*num_encoded_;
    std::vector<int64_t> ends(static_cast<size_t>(out.rows()));
    std::iota(ends.begin(), ends.end(), 1);
    TowerWork work;
    work.AddRuns(ends, 1, [this, image, out](int64_t i, int64_t) {
      ++*num_rows_;
      if (image.grid_w == 77) return InternalError("a layer fails");
      const float value = 100 * *image.pixels.Data<float>() + static_cast<float>(i);
      std::fill_n(out.Row<float>(i), kHidden, value);
      std::fill_n(out.Row<float>(i) + kHidden, 2 * kHidden, value + 0.5F);
      return OkStatus();
    });
    return work;
  }

 private:
  int *num_encoded_, *num_rows_;
};

// Of grid_h times grid_w patches, four of which are a row.
std::shared_ptr<ImageInput> Image(const std::string& key, float pixel, int32_t begin,
                                  int32_t grid_h, int32_t grid_w) {
  auto image = std::make_shared<ImageInput>();
  image->key = key;
  image->begin = begin;
  image->num_tokens = image->num_rows = grid_h * grid_w / 4;
  image->runs = {{begin, image->num_rows}};
  image->grid_h = grid_h;
  image->grid_w = grid_w;
  image->shape = {1, 1};
  image->pixels = {pixel};
  return image;
}

// Two requests of 40 tokens in a batch, stepped by hand.
class Bench {
 public:
  explicit Bench(ImageLimits limits)
      : batch_(Limits(), {.vocab_size = 10, .max_logprobs = 0}),
        backend_(MakeReferenceBackend()),
        inputs_(&backend_->device(), std::make_unique<CountingTower>(&num_encoded, &num_rows),
                limits, kHidden) {}

  void Admit(int32_t slot, RequestImages images) {
    const std::vector<TokenId> tokens(40, 1);
    const wire::SamplingParams params;
    const RequestId id = "a";
    batch_.Admit(
        RequestSlot{slot},
        {.request_id = &id,
         .sampling_params = &params,
         .token_ids = tokens,
         .num_prompt_tokens = 40,
         .images = images.empty() ? nullptr : std::make_shared<const RequestImages>(images)},
        0);
    batch_.AppendBlocks(RequestSlot{slot}, std::vector<BlockId>{BlockId{1}, BlockId{2}});
  }
  // A step with slices of an image alone. image: null: it is under way.
  void Slice(const std::string& key, const std::shared_ptr<ImageInput>& image, int32_t num_slices) {
    SchedulerOutput step;
    step.encoder_inputs.push_back({key, image, num_slices});
    CHECK(step.has_work());
    REQUIRE(inputs_.TakeIn(step).ok());
  }
  // Runs tokens [begin, begin + count) of each slot.
  void Run(const std::vector<std::array<int32_t, 3>>& parts, const RequestImages& computed,
           std::vector<std::string> dropped = {}) {
    SchedulerOutput step;
    for (const auto& image : computed) {
      step.encoder_inputs.push_back({image->key, image, image->num_slices});
    }
    step.dropped_encoder_outputs = std::move(dropped);
    for (const auto& [slot, begin, count] : parts) {
      step.requests.push_back(
          {.slot = RequestSlot{slot}, .num_computed_tokens = begin, .num_scheduled_tokens = count});
      step.num_scheduled_tokens += count;
    }
    REQUIRE(inputs_.TakeIn(step).ok());
    StepLayout layout;
    layout.Reserve(4);
    layout.LayOut(step, batch_);
    rows.clear();
    inputs_.Fill(layout, batch_, &rows);
  }
  // "row of the step:value …" of the first column.
  static std::string Text(std::span<const EmbeddedRows> all) {
    std::string text;
    for (const EmbeddedRows& some : all) {
      for (int64_t i = 0; i < some.values.rows(); ++i) {
        const float value = *some.values.Row<float>(i);
        text += std::to_string(some.first + i) + ":" +
                (std::isnan(value) ? "nan" : std::to_string(static_cast<int>(value))) + " ";
      }
    }
    return text;
  }
  static std::vector<int32_t> Numbers(const Tensor& x, int64_t begin = 0, int64_t count = -1) {
    const int32_t* first = x.Data<int32_t>() + begin;
    return {first, first + (count < 0 ? x.NumElements() : count)};
  }
  StepImages& inputs() { return inputs_; }

  std::vector<EmbeddedRows> rows;
  int num_encoded = 0, num_rows = 0;

 private:
  static ExecutorLimits Limits() {
    return {.num_blocks = 9,
            .block_size = 32,
            .max_num_seqs = 2,
            .max_num_batched_tokens = 64,
            .max_model_len = 64,
            .vocab_size = 10};
  }
  InputBatch batch_;
  std::unique_ptr<Backend> backend_;
  StepImages inputs_;
};

constexpr ImageLimits kPatches = {.patch_numbers = 1, .merge_size = 2, .have_positions = true};
constexpr ImageLimits kWhole = {.are_whole = true};

TEST_CASE("step images: rows are computed once, kept, and given to the parts that read them") {
  Bench bench(kPatches);
  const auto a = Image("a", 1, 4, 4, 6), b = Image("b", 2, 20, 2, 4);
  bench.Admit(0, {a, b});
  bench.Admit(1, {});
  bench.Run({{1, 0, 3}, {0, 2, 5}}, {a});  // places 2 to 6 are rows 3 to 7 of the step
  CHECK(bench.num_encoded == 1);
  CHECK(Bench::Text(bench.rows) == "5:100 6:101 7:102 ");
  CHECK(Bench::Text(bench.inputs().deepstack()) == "5:100 6:101 7:102 ");
  REQUIRE(bench.inputs().deepstack().size() == 1);
  CHECK(bench.inputs().deepstack()[0].values.shape[1] == 2 * kHidden);
  CHECK(*bench.inputs().deepstack()[0].values.Row<float>(0) == 100.5F);
  bench.Run({{0, 7, 15}}, {b});
  CHECK(bench.num_encoded == 2);
  CHECK(Bench::Text(bench.rows) == "0:103 1:104 2:105 13:200 14:201 ");
  CHECK(bench.inputs().num_kept_rows() == 8);
  bench.Run({{0, 22, 5}}, {}, {"a", "b"});
  CHECK(bench.rows.empty());
  CHECK(bench.inputs().num_kept_rows() == 0);
}

TEST_CASE("step images: a step without images has no rows, positions or last keys") {
  Bench bench(kPatches);
  bench.Admit(0, {Image("a", 1, 4, 4, 6)});
  bench.Admit(1, {});
  bench.Run({{1, 0, 9}}, {});
  CHECK(bench.rows.empty());
  CHECK(bench.inputs().mrope_positions().empty());
  CHECK(bench.inputs().last_seen().empty());
}

TEST_CASE("step images: positions of images are their times, rows and columns") {
  Bench bench(kPatches);
  bench.Admit(0, {Image("a", 1, 2, 4, 6), Image("b", 1, 9, 2, 2)});  // two rows of three; one
  bench.Admit(1, {});
  bench.Run({{1, 5, 1}, {0, 0, 12}}, {Image("a", 1, 2, 4, 6), Image("b", 1, 9, 2, 2)});
  const Tensor& positions = bench.inputs().mrope_positions();
  REQUIRE(positions.shape[0] == 3);
  CHECK(Bench::Numbers(positions, 0, 13) ==
        std::vector<int32_t>{5, 0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7, 8});
  CHECK(Bench::Numbers(positions, 13, 13) ==
        std::vector<int32_t>{5, 0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 8});
  CHECK(Bench::Numbers(positions, 26, 13) ==
        std::vector<int32_t>{5, 0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8});
  // A decode goes on from there: one image saves three positions.
  bench.Run({{0, 39, 1}}, {});
  CHECK(Bench::Numbers(bench.inputs().mrope_positions()) == std::vector<int32_t>{36, 36, 36});
}

TEST_CASE("step images: positions do not depend on where a part begins") {
  const RequestImages images = {Image("a", 1, 3, 4, 10), Image("b", 1, 20, 6, 2)};
  constexpr int32_t kLength = 40;
  std::vector<int32_t> all[3];
  for (auto& axis : all) axis.resize(kLength);
  FillMropePositions(&images, 2, 0, {all[0], all[1], all[2]});
  for (int32_t begin = 0; begin < kLength; ++begin) {
    for (int32_t end = begin; end <= kLength; ++end) {
      std::vector<int32_t> part[3];
      for (auto& axis : part) axis.resize(static_cast<size_t>(end - begin));
      FillMropePositions(&images, 2, begin, {part[0], part[1], part[2]});
      for (int axis = 0; axis < 3; ++axis) {
        CHECK(std::equal(part[axis].begin(), part[axis].end(), all[axis].begin() + begin));
      }
    }
  }
  CHECK(all[0][39] == 39 - 10 + 5 - 3 + 3);
}

TEST_CASE("step images: tokens of an image that is whole see its last one") {
  Bench bench(kWhole);
  auto image = Image("a", 1, 4, 4, 4);  // of four rows, with a token on each side
  image->begin = 3;
  image->num_tokens = 6;
  bench.Admit(0, {image});
  bench.Admit(1, {});
  bench.Run({{1, 7, 2}, {0, 2, 9}}, {image});
  CHECK(Bench::Numbers(bench.inputs().last_seen()) ==
        std::vector<int32_t>{7, 8, 2, 3, 7, 7, 7, 7, 8, 9, 10});
  CHECK(bench.inputs().mrope_positions().empty());
  CHECK(Bench::Text(bench.rows) == "4:100 5:101 6:102 7:103 ");
}

TEST_CASE("step images: an image in slices has the rows of one at once") {
  Bench bench(kPatches);
  const auto a = Image("a", 1, 4, 4, 6), b = Image("b", 2, 20, 2, 4);
  a->num_slices = 4;
  bench.Admit(0, {a, b});
  bench.Admit(1, {});
  bench.Slice("a", a, 1);
  CHECK(bench.num_rows == 2);  // a fourth of six, rounded up
  bench.Run({{1, 0, 3}}, {b});
  bench.Slice("a", nullptr, 2);
  CHECK(bench.num_rows == 2 + 2 + 3);
  CHECK(bench.inputs().num_kept_rows() == 8);
  bench.Slice("a", nullptr, 1);
  CHECK(bench.num_encoded == 2);
  bench.Run({{1, 3, 1}, {0, 2, 5}}, {});
  CHECK(Bench::Text(bench.rows) == "3:100 4:101 5:102 ");
}

TEST_CASE("step images: an image that is dropped under way can be begun again") {
  Bench bench(kPatches);
  const auto a = Image("a", 1, 0, 4, 6);
  a->num_slices = 3;
  bench.Admit(0, {a});
  bench.Admit(1, {});
  bench.Slice("a", a, 2);
  bench.Run({{1, 0, 3}}, {}, {"a"});
  CHECK(bench.inputs().num_kept_rows() == 0);
  bench.Slice("a", a, 1);
  bench.inputs().SetTower(nullptr);  // a sleep, for which the scheduler forgets it
  CHECK(bench.inputs().num_kept_rows() == 0);
}

TEST_CASE("step images: a tower that fails under way spoils that image alone") {
  Bench bench(kPatches);
  const auto bad = Image("bad", 1, 0, 4, 77), good = Image("good", 2, 0, 2, 2);
  bad->num_slices = 3;
  bench.Admit(0, {bad});
  bench.Admit(1, {good});
  bench.Slice("bad", bad, 1);
  bench.Slice("bad", nullptr, 2);
  CHECK(bench.num_rows == 1);
  bench.Run({{0, 0, 2}, {1, 0, 1}}, {good});
  CHECK(Bench::Text(bench.rows) == "0:nan 1:nan 2:200 ");
}

TEST_CASE("step images: an image that the tower refuses spoils its own requests alone") {
  Bench bench(kPatches);
  auto bad = Image("bad", 1, 0, 4, 4);
  bad->grid_h = 99;
  const auto good = Image("good", 2, 0, 2, 2);
  bench.Admit(0, {Image("bad", 1, 0, 4, 4)});
  bench.Admit(1, {good});
  bench.Run({{0, 0, 2}, {1, 0, 2}}, {bad, good});
  CHECK(Bench::Text(bench.rows) == "0:nan 1:nan 2:200 ");
}

}  // namespace
}  // namespace tandem
