#include "common/json_text.h"

namespace tandem {

std::string WithoutInfinities(std::string_view text) {
  constexpr std::string_view kWord = "Infinity", kNumber = "1.00e308";
  std::string result(text);
  bool is_in_string = false;
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i] == '\\' && is_in_string) {
      ++i;
    } else if (result[i] == '"') {
      is_in_string = !is_in_string;
    } else if (!is_in_string && result.compare(i, kWord.size(), kWord) == 0) {
      result.replace(i, kWord.size(), kNumber);
    }
  }
  return result;
}

}  // namespace tandem
