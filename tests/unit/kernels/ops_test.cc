// The checks that an op makes of its arguments before its implementation runs.

#include "kernels/ops.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "kernels/backend.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

// What a process that calls `run` prints when it dies; empty if it lives.
template <class F>
std::string DeathOf(F run) {
  int channel[2];
  REQUIRE(pipe(channel) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(channel[1], STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);
    run();
    _exit(0);
  }
  close(channel[1]);
  std::string message;
  char buffer[512];
  for (ssize_t size; (size = read(channel[0], buffer, sizeof(buffer))) > 0;) {
    message.append(buffer, static_cast<size_t>(size));
  }
  close(channel[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? message : "";
}

TEST_CASE("an op whose arguments do not fit dies with their types and shapes") {
  const auto backend = MakeReferenceBackend();
  Ops& ops = backend->ops();
  std::vector<float> memory(64);
  const auto f32 = [&](int64_t rows, int64_t columns) {
    return Tensor(memory.data(), DType::kF32, {rows, columns});
  };
  const Tensor weight(memory.data(), DType::kF32, {4});
  CHECK(DeathOf([&] { ops.RmsNorm(f32(2, 4), f32(2, 4), weight, 0); }).empty());
  CHECK_THAT(DeathOf([&] { ops.RmsNorm(f32(2, 5), f32(2, 4), weight, 0); }),
             Contains("ops.cc") && Contains("float32[2, 5]float32[2, 4]"));
  CHECK_THAT(DeathOf([&] { ops.SoftCap(f32(2, 4), 0); }), Contains("cap > 0"));
  const Tensor bf16(memory.data(), DType::kBf16, {2, 4});
  CHECK_THAT(DeathOf([&] { ops.Add(f32(2, 4), bf16); }), Contains("bfloat16[2, 4]"));
}

// A matrix that no op reads, since its checks fail.
class EmptyMatrix final : public PackedMatrix {
 public:
  EmptyMatrix() : PackedMatrix(6, 4) {}
  int64_t num_bytes() const override { return 0; }
};

TEST_CASE("a product whose arguments do not fit its matrix dies") {
  const auto backend = MakeReferenceBackend();
  Ops& ops = backend->ops();
  std::vector<float> memory(64);
  const Tensor x(memory.data(), DType::kF32, {2, 4});
  const Tensor out(memory.data() + 32, DType::kF32, {2, 6});
  const EmptyMatrix matrix;
  CHECK_THAT(DeathOf([&] { ops.Linear(out, x, matrix, {}, LinearEpilogue::kSiluAndMul); }),
             Contains("is_gated"));
  CHECK_THAT(DeathOf([&] { ops.Linear(out, x.Columns(0, 3), matrix); }),
             Contains("float32[2, 3] times 6 x 4"));
}

}  // namespace
}  // namespace tandem
