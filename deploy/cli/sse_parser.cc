#include "deploy/cli/sse_parser.h"

#include <algorithm>
#include <utility>

namespace tandem {

bool SseParser::Feed(std::string_view bytes,
                     const std::function<bool(std::string_view data)>& on_event) {
  while (!bytes.empty()) {
    if (std::exchange(after_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::string_view up_to_lf = bytes.substr(0, bytes.find('\n'));
    const size_t end = std::min(up_to_lf.find('\r'), up_to_lf.size());
    if (end == bytes.size()) {
      line_ += bytes;
      return true;
    }
    std::string_view line = bytes.substr(0, end);
    if (!line_.empty()) line = line_ += line;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    const bool go_on = TakeLine(line, on_event);
    line_.clear();
    if (!go_on) return false;
  }
  return true;
}

bool SseParser::TakeLine(std::string_view line,
                         const std::function<bool(std::string_view data)>& on_event) {
  if (line.empty()) {
    if (!std::exchange(has_data_, false)) return true;
    const bool go_on = data_ != "[DONE]" && on_event(data_);
    data_.clear();
    return go_on;
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF", kField = "data";
  if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  if (!line.starts_with(kField)) return true;
  line.remove_prefix(kField.size());
  if (!line.empty() && line.front() != ':') return true;  // a longer name
  if (line.starts_with(": ")) {
    line.remove_prefix(2);
  } else if (!line.empty()) {
    line.remove_prefix(1);
  }
  if (has_data_) data_ += '\n';
  has_data_ = true;
  data_ += line;
  return true;
}

}  // namespace tandem
