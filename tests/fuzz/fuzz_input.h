#pragma once

// The entry of every fuzz target, as libFuzzer calls it, and the way targets take their input
// apart. A target is one file that defines LLVMFuzzerTestOneInput; it ends the process by CHECK
// where a promise is broken, and the sanitizers do the rest. Builds without libFuzzer run it over
// its corpus (corpus_main.cc).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tandem {

// Choices come first and one byte each, so that the rest of an input is the text that it tests.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}

  // The next byte, below the limit; 0 when there is none.
  size_t Below(size_t limit) {
    if (left_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(left_.front());
    left_.remove_prefix(1);
    return byte % limit;
  }
  // A length byte and as many bytes, or what is left.
  std::string_view Part() {
    const size_t size = Below(256);
    const std::string_view part = left_.substr(0, size);
    left_.remove_prefix(part.size());
    return part;
  }
  // Up to the separator, which is dropped; without one all that is left.
  std::string_view Until(char separator) {
    const std::string_view part = left_.substr(0, left_.find(separator));
    left_.remove_prefix(std::min(left_.size(), part.size() + 1));
    return part;
  }
  std::string_view Rest() { return left_; }

 private:
  std::string_view left_;
};

}  // namespace tandem
