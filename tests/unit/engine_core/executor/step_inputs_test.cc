#include "engine_core/executor/step_inputs.h"

#include <algorithm>
#include <numeric>

#include "tests/support/cuda_emulation/emulated_cuda_backend.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr StepShape kMost = {.num_tokens = 40,
                             .num_requests = 6,
                             .num_logits_rows = 40,
                             .attention_work = 30,
                             .table_columns = 9};

std::vector<const Tensor*> All(const StepInputs::Views& views) {
  return {&views.token_ids,     &views.positions,      &views.slots,      &views.logits_rows,
          &views.sampling_rows, &views.attention_work, &views.block_table};
}

std::unique_ptr<Backend> EmulatedDevice() {
  return MakeEmulatedCudaBackend({.dtype = DType::kF32, .num_threads = 1}).value();
}

TEST_CASE("step inputs: all parts arrive, and a later step does not change those in flight") {
  const auto backend = EmulatedDevice();
  StepInputs inputs = StepInputs::Create(&backend->device(), kMost).value();
  const OwnedTensor seen = backend->device().Allocate(DType::kI32, {3, 40}).value();
  for (int32_t step = 0; step < 3; ++step) {
    inputs.Begin({.num_tokens = 40 - step,
                  .num_requests = 6,
                  .num_logits_rows = 7,
                  .attention_work = 30,
                  .table_columns = 9 - step});
    int32_t value = 1000 * step;
    for (const Tensor* part : All(inputs.host())) {
      std::iota(part->Data<int32_t>(), part->Data<int32_t>() + part->NumElements(), value);
      value += 100;
    }
    inputs.Send();
    const int64_t count = 40 - step;
    backend->device().StartCopyOut(Tensor(seen.view().Row<int32_t>(step), DType::kI32, {count}),
                                   inputs.device().token_ids);
  }
  std::vector<int32_t> host(3 * 40);
  backend->device().CopyOut(Tensor(host.data(), DType::kI32, {3, 40}), seen);
  for (int32_t step = 0; step < 3; ++step) {
    CAPTURE(step);
    CHECK(host[static_cast<size_t>(40 * step)] == 1000 * step);
    CHECK(host[static_cast<size_t>(40 * step + 39 - step)] == 1000 * step + 39 - step);
  }
  int32_t value = 2000;
  for (const Tensor* part : All(inputs.device())) {
    std::vector<int32_t> numbers(static_cast<size_t>(part->NumElements()));
    Tensor copy = *part;
    copy.data = numbers.data();
    backend->device().CopyOut(copy, *part);
    CHECK(numbers.front() == value);
    CHECK(numbers.back() == value + part->NumElements() - 1);
    value += 100;
  }
}

TEST_CASE(
    "step inputs: a shape has its addresses whatever the width of the table and the step before") {
  const auto backend = EmulatedDevice();
  StepInputs inputs = StepInputs::Create(&backend->device(), kMost).value();
  StepShape decode = {.num_tokens = 5,
                      .num_requests = 5,
                      .num_logits_rows = 5,
                      .attention_work = 21,
                      .table_columns = 2};
  inputs.Begin(decode);
  const StepInputs::Views first = inputs.device();
  inputs.Begin(kMost);
  decode.table_columns = 9;
  inputs.Begin(decode);
  const auto before = All(first), after = All(inputs.device());
  for (size_t i = 0; i < before.size(); ++i) {
    CHECK(before[i]->data == after[i]->data);
    CHECK(reinterpret_cast<uintptr_t>(after[i]->data) % 16 == 0);
  }
}

TEST_CASE("step inputs: another rank takes all but the plans' own numbers") {
  const auto backend = EmulatedDevice();
  StepInputs from = StepInputs::Create(&backend->device(), kMost).value();
  StepInputs to = StepInputs::Create(&backend->device(), kMost).value();
  StepShape shape = {.num_tokens = 3,
                     .num_requests = 2,
                     .num_logits_rows = 1,
                     .attention_work = 7,
                     .table_columns = 2,
                     .num_groups = 2};
  from.Begin(shape);
  to.Begin(shape);
  int32_t value = 0;
  for (const Tensor* part : All(from.host())) {
    std::iota(part->Data<int32_t>(), part->Data<int32_t>() + part->NumElements(), value += 100);
  }
  const Tensor& own = to.host().attention_work;
  REQUIRE(own.NumElements() == 14);
  std::fill_n(own.Data<int32_t>(), 14, -1);
  to.Take(from.numbers());
  CHECK(std::count(own.Data<int32_t>(), own.Data<int32_t>() + 14, -1) == 14);
  const auto sent = All(from.host()), taken = All(to.host());
  for (size_t i = 0; i < sent.size(); ++i) {
    if (taken[i] == &own) continue;
    const auto* numbers = sent[i]->Data<int32_t>();
    CHECK(std::equal(numbers, numbers + sent[i]->NumElements(), taken[i]->Data<int32_t>()));
  }
  shape.attention_work = 0;
  CHECK(static_cast<int64_t>(from.numbers().size()) == StepInputs::NumNumbers(shape));
}

// An image of 2 by 3 rows at places 4 to 9 of a request that has computed 3 tokens.
TEST_CASE("step inputs: what tokens of images have goes to the device, and padding is a text") {
  ExecutorLimits limits = {.num_blocks = 9,
                           .block_size = 16,
                           .max_num_seqs = 2,
                           .max_num_batched_tokens = 40,
                           .max_model_len = 32,
                           .vocab_size = 10};
  limits.images = ImageLimits{.merge_size = 2, .have_positions = true};
  InputBatch batch(limits, {.vocab_size = 10, .max_logprobs = 0});
  auto image = std::make_shared<ImageInput>();
  image->runs = {{4, 6}};
  image->grid_h = 4;
  image->grid_w = 6;
  const std::vector<TokenId> tokens(20, 1);
  const wire::SamplingParams params;
  const RequestId id = "a";
  batch.Admit(RequestSlot{1},
              {.request_id = &id,
               .sampling_params = &params,
               .token_ids = tokens,
               .num_prompt_tokens = 20,
               .images = std::make_shared<const RequestImages>(RequestImages{image})},
              3);
  batch.AppendBlocks(RequestSlot{1}, std::vector<BlockId>{BlockId{1}, BlockId{2}});
  SchedulerOutput step;
  step.requests.push_back(
      {.slot = RequestSlot{1}, .num_computed_tokens = 3, .num_scheduled_tokens = 9});
  StepLayout layout;
  layout.Reserve(2);
  layout.LayOut(step, batch);
  const auto backend = EmulatedDevice();
  StepShape shape = kMost;
  shape.has_mrope = shape.has_last_seen = true;
  StepInputs inputs = StepInputs::Create(&backend->device(), shape).value();
  shape.num_tokens = layout.num_tokens();
  shape.num_requests = layout.num_requests();
  shape.num_logits_rows = layout.num_logits_rows();
  inputs.Begin(shape);
  inputs.Fill(layout, batch);
  inputs.Send();
  const auto sent = [&](const Tensor& part) {
    std::vector<int32_t> numbers(static_cast<size_t>(part.NumElements()));
    Tensor copy = part;
    copy.data = numbers.data();
    backend->device().CopyOut(copy, part);
    return numbers;
  };
  CHECK(sent(inputs.device().mrope_positions) ==
        std::vector<int32_t>{3, 4, 4, 4, 4, 4, 4, 7, 8,    // time
                             3, 4, 4, 4, 5, 5, 5, 7, 8,    // height
                             3, 4, 5, 6, 4, 5, 6, 7, 8});  // width
  CHECK(sent(inputs.device().last_seen) == std::vector<int32_t>{3, 9, 9, 9, 9, 9, 9, 10, 11});

  layout.LayOutPadding(/*num_tokens=*/3, /*tokens_per_request=*/2, /*num_logits_rows=*/0, 16);
  shape.num_tokens = 3;
  shape.num_requests = 2;
  shape.num_logits_rows = 0;
  inputs.Begin(shape);
  inputs.Fill(layout, batch);
  inputs.Send();
  CHECK(sent(inputs.device().mrope_positions) == std::vector<int32_t>{0, 1, 0, 0, 1, 0, 0, 1, 0});
  CHECK(sent(inputs.device().last_seen) == std::vector<int32_t>{0, 0, 0});
}

TEST_CASE("step inputs: one memory where the host's is the backend's") {
  const auto backend = MakeReferenceBackend();
  StepInputs inputs = StepInputs::Create(&backend->device(), kMost).value();
  inputs.Begin(kMost);
  CHECK(inputs.host().slots.data == inputs.device().slots.data);
}

}  // namespace
}  // namespace tandem
