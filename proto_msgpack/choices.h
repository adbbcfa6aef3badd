#pragma once

// The n choices of one prompt on the wire. To vLLM's engines each is a message of its own, and so
// is it between vLLM and us. Between our own two programs the message of the first one stands for
// all: its sampling_params.n is their number, and the others are equal to it but for their id and
// seed, which follow from its own. A request that is sent again travels alone.
// Pure functions; any thread.

#include <cstdint>
#include <optional>
#include <string>

#include "common/ids.h"

namespace tandem::wire {

inline constexpr int32_t kMaxChoices = 1 << 16;  // of one message

// "2_<id>", as vLLM names the children of a request.
inline RequestId ChoiceId(const std::string& id, int64_t choice) {
  return std::to_string(choice) + "_" + id;
}

// The part of the first choice's id that all share; nothing when it is not a first choice's.
inline std::optional<std::string> SharedId(const RequestId& first) {
  constexpr char kFirst[] = "0_";
  if (first.rfind(kFirst, 0) != 0) return std::nullopt;
  return first.substr(sizeof kFirst - 1);
}

// The same of any choice's id; empty when it is none's.
inline std::string SharedByChoices(const RequestId& id) {
  const size_t end = id.find_first_not_of("0123456789");
  return end == 0 || end == id.npos || id[end] != '_' ? "" : id.substr(end + 1);
}

// Wraps around instead of overflowing.
inline int64_t ChoiceSeed(int64_t first, int64_t choice) {
  return static_cast<int64_t>(static_cast<uint64_t>(first) + static_cast<uint64_t>(choice));
}

}  // namespace tandem::wire
