#pragma once

// A log line as a JSON object. Pure; any thread.

#include <string>
#include <string_view>
#include <vector>

#include "common/log_event.h"

namespace tandem {

struct LogRecord {
  double unix_time = 0;
  std::string_view level;
  std::string_view file;  // bare name
  int line = 0;
  std::string_view process_name;
  int process_id = 0;
  std::string_view message;
  const std::vector<LogField>* fields = nullptr;  // may be null
};

// Without a line end; nothing in it is one.
std::string JsonLogLine(const LogRecord& record);

// Appends text in quotes with JSON's escapes, control characters and all ends of lines among them;
// each broken part of UTF-8 becomes U+FFFD.
void AppendJsonText(std::string_view text, std::string* out);

}  // namespace tandem
