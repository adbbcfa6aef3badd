#pragma once

// Ids of traces and spans as numbers: 128 and 64 bits, written as lower-case hex, the highest digit
// first. 0 is no id. Pure; any thread.

#include <cstdint>
#include <string>

namespace tandem {

struct TraceId {
  uint64_t high = 0;
  uint64_t low = 0;

  bool is_set() const { return (high | low) != 0; }
  friend bool operator==(const TraceId&, const TraceId&) = default;
};

using SpanId = uint64_t;

std::string HexText(SpanId id);          // 16 digits
std::string HexText(const TraceId& id);  // 32 digits

// From the kernel's random source.
TraceId RandomTraceId();
SpanId RandomSpanId();

}  // namespace tandem
