#include "common/flag_word.h"

#include <algorithm>

#include "common/strings.h"

namespace tandem {

bool IsFlagWord(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && !ParseNumber<double>(word);
}

std::string WithDashes(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

}  // namespace tandem
