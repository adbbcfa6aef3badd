#pragma once

// The newest traced observation of each bucket of a histogram, for OpenMetrics. Thread: any; nobody
// waits: an observation that meets another one in the same bucket is left out, since one is enough.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "frontend/metrics/buckets.h"
#include "frontend/tracing/trace_id.h"

namespace tandem {

struct Exemplar {
  TraceId trace_id;
  double value = 0;
  double unix_time = 0;
};

class Exemplars {
 public:
  explicit Exemplars(Buckets bounds);
  Exemplars(const Exemplars&) = delete;

  void Add(const Exemplar& exemplar);
  // bucket: the index of its bound; after the last one is that of +Inf.
  std::optional<Exemplar> Read(size_t bucket) const;

 private:
  // A sequence lock: the version is odd while the words are written.
  struct Slot {
    std::atomic<uint64_t> version = 0;
    std::array<std::atomic<uint64_t>, 4> words = {};
  };
  const Buckets bounds_;
  const std::unique_ptr<Slot[]> slots_;
};

}  // namespace tandem
