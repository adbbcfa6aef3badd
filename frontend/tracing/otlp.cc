#include "frontend/tracing/otlp.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "common/utf8.h"

namespace tandem {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Field numbers, as the .proto files have them.
namespace field {
constexpr uint32_t kRequestResourceSpans = 1;
constexpr uint32_t kResourceSpansResource = 1, kResourceSpansScopeSpans = 2;
constexpr uint32_t kResourceAttributes = 1;
constexpr uint32_t kScopeSpansScope = 1, kScopeSpansSpans = 2;
constexpr uint32_t kScopeName = 1, kScopeVersion = 2;
constexpr uint32_t kKeyValueKey = 1, kKeyValueValue = 2;
constexpr uint32_t kValueString = 1, kValueInt = 3, kValueDouble = 4;
constexpr uint32_t kSpanTraceId = 1, kSpanId = 2, kSpanTraceState = 3, kSpanParentId = 4,
                   kSpanName = 5, kSpanKind = 6, kSpanBegin = 7, kSpanEnd = 8, kSpanAttributes = 9,
                   kSpanStatus = 15, kSpanFlags = 16;
constexpr uint32_t kStatusMessage = 2, kStatusCode = 3;
constexpr uint32_t kReplyPartialSuccess = 1, kRefusedSpans = 1, kRefusedMessage = 2;
}  // namespace field

constexpr uint64_t kInternalKind = 1, kServerKind = 2;
constexpr uint64_t kErrorCode = 2;
constexpr uint32_t kSampledFlag = 1, kKnowsRemoteFlag = 0x100, kRemoteFlag = 0x200;

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void AppendTag(uint32_t number, WireType type, std::string* out) {
  AppendVarint(uint64_t{number} << 3 | type, out);
}

void AppendNumber(uint32_t number, uint64_t value, std::string* out) {
  AppendTag(number, kVarint, out);
  AppendVarint(value, out);
}

template <class Word>
void AppendFixed(uint32_t number, Word word, std::string* out) {
  AppendTag(number, sizeof word == sizeof(uint64_t) ? kFixed64 : kFixed32, out);
  for (size_t i = 0; i < sizeof word; ++i) out->push_back(static_cast<char>(word >> (8 * i)));
}

void AppendBytes(uint32_t number, std::string_view bytes, std::string* out) {
  AppendTag(number, kBytes, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes);
}

void AppendText(uint32_t number, std::string_view text, std::string* out) {
  if (text.empty()) return;  // the default
  std::string whole;
  AppendLossyUtf8(text, &whole);
  AppendBytes(number, whole, out);
}

// Ids are bytes, the highest first.
void AppendIdBytes(uint64_t word, std::string* bytes) {
  for (int shift = 56; shift >= 0; shift -= 8) bytes->push_back(static_cast<char>(word >> shift));
}

std::string ValueMessage(const AttributeValue& value) {
  std::string message;
  if (const auto* text = std::get_if<std::string>(&value)) {
    // Written even if empty: without it the value would have no type.
    std::string whole;
    AppendLossyUtf8(*text, &whole);
    AppendBytes(field::kValueString, whole, &message);
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    AppendNumber(field::kValueInt, static_cast<uint64_t>(*integer), &message);
  } else {
    AppendFixed(field::kValueDouble, std::bit_cast<uint64_t>(std::get<double>(value)), &message);
  }
  return message;
}

void AppendAttributes(uint32_t number, const std::vector<Attribute>& attributes, std::string* out) {
  for (const auto& [key, value] : attributes) {
    std::string message;
    AppendText(field::kKeyValueKey, key, &message);
    AppendBytes(field::kKeyValueValue, ValueMessage(value), &message);
    AppendBytes(number, message, out);
  }
}

uint64_t Nanoseconds(double unix_time) {
  return static_cast<uint64_t>(std::llround(std::max(0.0, unix_time) * 1e9));
}

std::string SpanMessage(const Span& span) {
  std::string message, bytes;
  AppendIdBytes(span.trace_id.high, &bytes);
  AppendIdBytes(span.trace_id.low, &bytes);
  AppendBytes(field::kSpanTraceId, bytes, &message);
  bytes.clear();
  AppendIdBytes(span.id, &bytes);
  AppendBytes(field::kSpanId, bytes, &message);
  AppendText(field::kSpanTraceState, span.state, &message);
  if (span.parent_id != 0) {
    bytes.clear();
    AppendIdBytes(span.parent_id, &bytes);
    AppendBytes(field::kSpanParentId, bytes, &message);
  }
  AppendText(field::kSpanName, span.name, &message);
  AppendNumber(field::kSpanKind, span.is_server ? kServerKind : kInternalKind, &message);
  AppendFixed(field::kSpanBegin, Nanoseconds(span.begin), &message);
  AppendFixed(field::kSpanEnd, Nanoseconds(std::max(span.begin, span.end)), &message);
  AppendAttributes(field::kSpanAttributes, span.attributes, &message);
  if (!span.error.empty()) {
    std::string status;
    AppendText(field::kStatusMessage, span.error, &status);
    AppendNumber(field::kStatusCode, kErrorCode, &status);
    AppendBytes(field::kSpanStatus, status, &message);
  }
  AppendFixed(field::kSpanFlags,
              kSampledFlag | kKnowsRemoteFlag | (span.has_remote_parent ? kRemoteFlag : 0),
              &message);
  return message;
}

// ---- The reply ----

std::optional<uint64_t> TakeVarint(std::string_view* bytes) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes->front());
    bytes->remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

struct Field {
  uint64_t number = 0;
  uint64_t varint = 0;
  std::string_view bytes;
};

// nullopt at the end, and where the rest is no message.
std::optional<Field> TakeField(std::string_view* rest) {
  const std::optional<uint64_t> tag = TakeVarint(rest);
  if (!tag) return std::nullopt;
  Field taken;
  taken.number = *tag >> 3;
  const auto take_bytes = [&](uint64_t size) {
    if (size > rest->size()) return false;
    taken.bytes = rest->substr(0, size);
    rest->remove_prefix(size);
    return true;
  };
  switch (*tag & 7) {
    case kVarint: {
      const std::optional<uint64_t> value = TakeVarint(rest);
      if (!value) return std::nullopt;
      taken.varint = *value;
      return taken;
    }
    case kBytes: {
      const std::optional<uint64_t> size = TakeVarint(rest);
      return size && take_bytes(*size) ? std::optional(taken) : std::nullopt;
    }
    case kFixed64:
      return take_bytes(sizeof(uint64_t)) ? std::optional(taken) : std::nullopt;
    case kFixed32:
      return take_bytes(sizeof(uint32_t)) ? std::optional(taken) : std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string EncodeTraces(const TraceResource& resource, std::span<const Span> spans) {
  if (spans.empty()) return "";
  std::string resource_message, scope, scope_spans, resource_spans, request;
  AppendAttributes(field::kResourceAttributes, resource.attributes, &resource_message);
  AppendText(field::kScopeName, resource.scope_name, &scope);
  AppendText(field::kScopeVersion, resource.scope_version, &scope);
  AppendBytes(field::kScopeSpansScope, scope, &scope_spans);
  for (const Span& span : spans) {
    AppendBytes(field::kScopeSpansSpans, SpanMessage(span), &scope_spans);
  }
  AppendBytes(field::kResourceSpansResource, resource_message, &resource_spans);
  AppendBytes(field::kResourceSpansScopeSpans, scope_spans, &resource_spans);
  AppendBytes(field::kRequestResourceSpans, resource_spans, &request);
  return request;
}

TracesRefused DecodeTracesReply(std::string_view bytes) {
  TracesRefused refused;
  while (const auto outer = TakeField(&bytes)) {
    if (outer->number != field::kReplyPartialSuccess) continue;
    std::string_view rest = outer->bytes;
    while (const auto inner = TakeField(&rest)) {
      if (inner->number == field::kRefusedSpans) {
        refused.num_spans = std::max<int64_t>(0, static_cast<int64_t>(inner->varint));
      }
      if (inner->number == field::kRefusedMessage) refused.message = inner->bytes;
    }
  }
  return refused;
}

}  // namespace tandem
