#include "frontend/text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

std::vector<size_t> Borders(std::string_view text) {
  std::vector<size_t> border(text.size() + 1, 0);
  size_t length = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = border[length];
    if (text[i] == text[length]) ++length;
    border[i + 1] = length;
  }
  return border;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> stop_strings, bool include_in_output)
    : include_in_output_(include_in_output) {
  for (std::string& text : stop_strings) {
    if (text.empty()) continue;
    std::vector<size_t> border = Borders(text);
    matchers_.push_back({std::move(text), std::move(border), 0});
  }
}

std::optional<std::string_view> StopStrings::Append(std::string_view delta, bool may_stop,
                                                    std::string* released) {
  if (matchers_.empty()) {
    released->append(delta);
    return std::nullopt;
  }
  for (size_t i = 0; i < delta.size(); ++i) {
    const Matcher* complete = nullptr;
    for (Matcher& matcher : matchers_) {
      size_t& matched = matcher.matched;
      while (matched > 0 && matcher.text[matched] != delta[i]) matched = matcher.border[matched];
      if (matcher.text[matched] == delta[i]) ++matched;
      if (matched < matcher.text.size()) continue;
      if (complete == nullptr) complete = &matcher;
      matched = matcher.border[matched];
    }
    if (complete == nullptr || !may_stop) continue;
    held_.append(delta, 0, i + 1);
    if (!include_in_output_) held_.resize(held_.size() - complete->text.size());
    Flush(released);
    return complete->text;
  }
  held_ += delta;
  size_t hold = 0;
  for (const Matcher& matcher : matchers_) hold = std::max(hold, matcher.matched);
  released->append(held_, 0, held_.size() - hold);
  held_.erase(0, held_.size() - hold);
  return std::nullopt;
}

void StopStrings::Flush(std::string* released) {
  *released += held_;
  held_.clear();
}

}  // namespace tandem
