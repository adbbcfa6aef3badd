#pragma once

// A log line about one event, with its facts as fields:
//   LOG_EVENT(LogLevel::kInfo, "request finished").Add("id", id).Add("output_tokens", 7);
// As text: "request finished id=cmpl-1 output_tokens=7"; as JSON the fields are members beside the
// message (common/log_format.h). The line is written at the end of the statement. Thread: any.

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/log.h"

namespace tandem {

struct LogField {
  std::string_view name;  // a literal; "id" is "request_id" in JSON
  std::string value;
  bool is_text = false;  // in JSON a string; otherwise `value` is JSON, and "" is null
  enum Where { kBoth, kOnlyJson, kOnlyText } where = kBoth;
};

// Writes the line, at whatever level; with LogEnabled(level) first, as LOG_EVENT does.
void LogLineWithFields(LogLevel level, const char* file, int line, std::string_view message,
                       const std::vector<LogField>& fields);

class LogEvent {
 public:
  // what: a literal, or a text that outlives the statement.
  LogEvent(LogLevel level, const char* file, int line, std::string_view what)
      : level_(level), file_(file), line_(line), what_(what), is_enabled_(LogEnabled(level)) {}
  ~LogEvent() {
    if (is_enabled_) LogLineWithFields(level_, file_, line_, what_, fields_);
  }
  LogEvent(const LogEvent&) = delete;

  LogEvent& Add(std::string_view name, std::string_view text) {
    return Append({name, std::string(text), /*is_text=*/true});
  }
  LogEvent& Add(std::string_view name, std::integral auto number) {
    return Append({name, std::to_string(number)});
  }
  // A number as JSON spells it.
  LogEvent& AddNumber(std::string_view name, std::string_view number) {
    return Append({name, std::string(number)});
  }
  // Shown in milliseconds with one decimal; absent: "-", or null.
  LogEvent& AddMs(std::string_view name, const std::optional<double>& seconds);
  // Only in JSON, for a message that has the fact in its words, or a field of text beside it.
  LogEvent& AddToJson(std::string_view name, std::string_view text) {
    return Append({name, std::string(text), /*is_text=*/true, LogField::kOnlyJson});
  }
  LogEvent& AddToJson(std::string_view name, std::integral auto number) {
    return Append({name, std::to_string(number), /*is_text=*/false, LogField::kOnlyJson});
  }
  // json: a value as JSON spells it.
  LogEvent& AddValueToJson(std::string_view name, std::string json) {
    return Append({name, std::move(json), /*is_text=*/false, LogField::kOnlyJson});
  }
  // Only in text, for what JSON has in another form.
  LogEvent& AddToText(std::string_view name, std::string text) {
    return Append({name, std::move(text), /*is_text=*/true, LogField::kOnlyText});
  }
  LogEvent& AddMsToJson(std::string_view name, double seconds);

 private:
  LogEvent& Append(LogField field) {
    if (is_enabled_) fields_.push_back(std::move(field));
    return *this;
  }

  const LogLevel level_;
  const char* const file_;
  const int line_;
  const std::string_view what_;
  const bool is_enabled_;
  std::vector<LogField> fields_;
};

#define LOG_EVENT(level, what) ::tandem::LogEvent(level, __FILE__, __LINE__, what)

}  // namespace tandem
