#include "kernels/cuda/libraries/gemm_choice.h"

#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

GemmTask Task() {
  GemmTask task;
  task.x = reinterpret_cast<const void*>(0x1000);
  task.weight = reinterpret_cast<const void*>(0x20000);
  task.out = reinterpret_cast<void*>(0x300000);
  task.x_stride = task.weight_stride = 1024;
  task.out_stride = 512;
  task.m = 100;
  task.n = 512;
  task.k = 1024;
  task.in = task.out_dtype = DType::kBf16;
  return task;
}

TEST_CASE("rows share an algorithm up to the next power of two or the middle between two") {
  const std::pair<int64_t, int64_t> buckets[] = {
      {1, 4},    {4, 4},     {5, 8},     {9, 16},    {16, 16},    {17, 32},
      {24, 32},  {33, 48},   {48, 48},   {49, 64},   {64, 64},    {65, 96},
      {97, 128}, {128, 128}, {129, 192}, {193, 256}, {8192, 8192}};
  for (const auto& [rows, bucket] : buckets) {
    CAPTURE(rows);
    CHECK(RowBucket(rows) == bucket);
  }
}

TEST_CASE("products that differ in any property of an algorithm have their own") {
  const GemmShape shape = ShapeOf(Task());
  CHECK(shape.m_bucket == 128);
  CHECK(shape.x_align == 256);  // the most that is distinguished
  GemmTask same = Task();
  same.m = 128;
  same.x = reinterpret_cast<const void*>(0x7000);
  CHECK(ShapeOf(same) == shape);
  std::vector<GemmTask> others(9, Task());
  others[0].m = 129;
  others[1].n = 513;
  others[2].k = 1025;
  others[3].x = reinterpret_cast<const void*>(0x1010);
  others[4].weight_stride = 1032;
  others[5].out_stride = 513;
  others[6].out_dtype = DType::kF32;
  others[7].accumulate = true;
  others[8].out = reinterpret_cast<void*>(0x300004);
  for (size_t i = 0; i < others.size(); ++i) {
    CAPTURE(i);
    CHECK_FALSE(ShapeOf(others[i]) == shape);
  }
  CHECK(ShapeOf(others[3]).x_align == 16);
  CHECK(ShapeOf(others[4]).weight_align == 16);
  CHECK(ShapeOf(others[5]).out_align == 2);
}

TEST_CASE("the candidate with the shortest best run is chosen") {
  std::vector<std::vector<float>> times = {{3, 3, 3}, {}, {9, 2, 9}, {2.5f, 2.5f, 2.5f}, {}};
  std::vector<size_t> next(times.size());
  std::vector<int> num_tried(times.size());
  const auto try_run = [&](size_t i) {
    ++num_tried[i];
    return !times[i].empty();
  };
  const auto time_run = [&](size_t i) { return times[i].at(next[i]++); };
  CHECK(FastestOf(times.size(), 3, try_run, time_run) == 2);
  CHECK(next == std::vector<size_t>{3, 0, 3, 3, 0});
  CHECK(num_tried == std::vector<int>(5, 1));
  times = {{}, {}, {4}};
  next.assign(3, 0);
  CHECK(FastestOf(3, 1, try_run, time_run) == 2);
  times = {{}, {}};
  CHECK(FastestOf(2, 1, try_run, time_run) == 0);
}

}  // namespace
}  // namespace tandem
