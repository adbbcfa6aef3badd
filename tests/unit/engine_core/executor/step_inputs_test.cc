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

TEST_CASE("step inputs: one memory where the host's is the backend's") {
  const auto backend = MakeReferenceBackend();
  StepInputs inputs = StepInputs::Create(&backend->device(), kMost).value();
  inputs.Begin(kMost);
  CHECK(inputs.host().slots.data == inputs.device().slots.data);
}

}  // namespace
}  // namespace tandem
