#include "common/log_json.h"

#include <time.h>

#include <cmath>
#include <cstdio>

#include "common/utf8.h"

namespace tandem {
namespace {

// Programs that split text into lines may end one here.
constexpr char32_t kLineSeparator = 0x2028, kParagraphSeparator = 0x2029;

// "2026-11-20T13:02:11.042Z"
std::string UtcStamp(double unix_time) {
  const double whole = std::floor(unix_time);
  const auto seconds = static_cast<time_t>(whole);
  tm utc;
  gmtime_r(&seconds, &utc);
  char date[32];
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
  char stamp[48];
  std::snprintf(stamp, sizeof stamp, "%s.%03dZ", date,
                static_cast<int>((unix_time - whole) * 1000));
  return stamp;
}

void AppendMember(std::string_view name, std::string_view text, std::string* out) {
  out->append(",\"").append(name).append("\":");
  AppendJsonText(text, out);
}

void AppendField(const LogField& field, std::string* out) {
  const std::string_view name = field.name == "id" ? "request_id" : field.name;
  if (field.is_text) return AppendMember(name, field.value, out);
  out->append(",\"").append(name).append("\":").append(field.value.empty() ? "null" : field.value);
}

}  // namespace

void AppendJsonText(std::string_view text, std::string* out) {
  *out += '"';
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Sequence next = ReadUtf8(text, pos);
    pos += next.size;
    const char32_t c = next.code_point;
    if (c == '"' || c == '\\') {
      *out += '\\';
      *out += static_cast<char>(c);
    } else if (c == '\n') {
      *out += "\\n";
    } else if (c < 0x20 || (c >= 0x7F && c < 0xA0) || c == kLineSeparator ||
               c == kParagraphSeparator) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      *out += escape;
    } else {
      AppendUtf8(c, out);
    }
  }
  *out += '"';
}

std::string JsonLogLine(const LogRecord& record) {
  std::string line = "{\"asctime\":\"" + UtcStamp(record.unix_time) + "\"";
  AppendMember("levelname", record.level, &line);
  AppendMember("name", "tandem." + std::string(record.file.substr(0, record.file.rfind('.'))),
               &line);
  line += ",\"lineno\":" + std::to_string(record.line);
  AppendMember("processName", record.process_name, &line);
  line += ",\"process\":" + std::to_string(record.process_id);
  AppendMember("message", record.message, &line);
  if (record.fields != nullptr) {
    for (const LogField& field : *record.fields) {
      if (field.where != LogField::kOnlyText) AppendField(field, &line);
    }
  }
  return line + "}";
}

}  // namespace tandem
