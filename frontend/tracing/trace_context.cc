#include "frontend/tracing/trace_context.h"

#include <sys/random.h>

#include <algorithm>
#include <set>

#include "common/check.h"
#include "common/strings.h"

namespace tandem {
namespace {

constexpr size_t kVersionDigits = 2;
constexpr size_t kTraceIdDigits = 32;
constexpr size_t kSpanIdDigits = 16;
constexpr size_t kFlagsDigits = 2;
constexpr size_t kVersion0Size =
    kVersionDigits + 1 + kTraceIdDigits + 1 + kSpanIdDigits + 1 + kFlagsDigits;
constexpr size_t kMaxStateMembers = 32;
constexpr size_t kMaxStateBytes = 8192;
constexpr size_t kMaxMemberBytes = 256;  // of a key, and of a value

// Lower-case digits alone, as the standard demands.
std::optional<uint64_t> ParseHex(std::string_view digits) {
  uint64_t value = 0;
  for (const char c : digits) {
    const bool is_number = c >= '0' && c <= '9';
    if (!is_number && (c < 'a' || c > 'f')) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(is_number ? c - '0' : c - 'a' + 10);
  }
  return value;
}

bool IsStateKey(std::string_view key) {
  const auto is_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (key.empty() || key.size() > kMaxMemberBytes || !is_word(key.front())) return false;
  return std::ranges::all_of(
      key, [&](char c) { return is_word(c) || std::string_view("_-*/@").find(c) != key.npos; });
}

bool IsStateValue(std::string_view value) {
  if (value.empty() || value.size() > kMaxMemberBytes) return false;
  return std::ranges::all_of(value,
                             [](char c) { return c >= 0x20 && c <= 0x7E && c != ',' && c != '='; });
}

bool IsState(std::string_view state) {
  if (state.size() > kMaxStateBytes) return false;
  std::set<std::string_view> keys;
  for (const std::string_view part : Split(state, ',')) {
    const std::string_view member = StripAscii(part);
    if (member.empty()) continue;
    const size_t equals = member.find('=');
    if (equals == member.npos || !IsStateKey(member.substr(0, equals)) ||
        !IsStateValue(member.substr(equals + 1))) {
      return false;
    }
    if (!keys.insert(member.substr(0, equals)).second) return false;
  }
  return keys.size() <= kMaxStateMembers;
}

uint64_t RandomWord() {
  uint64_t word = 0;
  while (word == 0) {
    CHECK_EQ(getrandom(&word, sizeof word, 0), static_cast<ssize_t>(sizeof word));
  }
  return word;
}

}  // namespace

std::string HexText(SpanId id) {
  std::string text(kSpanIdDigits, '0');
  for (size_t i = kSpanIdDigits; i-- > 0; id >>= 4) text[i] = "0123456789abcdef"[id & 15];
  return text;
}

std::string HexText(const TraceId& id) { return HexText(id.high) + HexText(id.low); }

TraceId RandomTraceId() { return {RandomWord(), RandomWord()}; }
SpanId RandomSpanId() { return RandomWord(); }

std::optional<TraceContext> ParseTraceContext(std::string_view traceparent,
                                              std::string_view tracestate) {
  const std::string_view text = StripAscii(traceparent);
  const bool is_longer = text.size() > kVersion0Size;
  if (text.size() < kVersion0Size || (is_longer && text[kVersion0Size] != '-')) return std::nullopt;
  size_t pos = 0;
  const auto take = [&](size_t num_digits) {
    const auto value = ParseHex(text.substr(pos, num_digits));
    pos += num_digits;
    return value;
  };
  const auto take_dash = [&] { return text[pos++] == '-'; };

  const auto version = take(kVersionDigits);
  const bool has_dash_1 = take_dash();
  const auto high = take(kTraceIdDigits / 2), low = take(kTraceIdDigits / 2);
  const bool has_dash_2 = take_dash();
  const auto span_id = take(kSpanIdDigits);
  const bool has_dash_3 = take_dash();
  const auto flags = take(kFlagsDigits);
  if (!version || !high || !low || !span_id || !flags) return std::nullopt;
  if (!has_dash_1 || !has_dash_2 || !has_dash_3) return std::nullopt;
  constexpr uint64_t kNoVersion = 0xFF;
  if (*version == kNoVersion || (*version == 0 && is_longer)) return std::nullopt;
  TraceContext context = {{*high, *low}, *span_id, (*flags & 1) != 0, ""};
  if (!context.trace_id.is_set() || context.span_id == 0) return std::nullopt;
  if (IsState(tracestate)) context.state = StripAscii(tracestate);
  return context;
}

}  // namespace tandem
