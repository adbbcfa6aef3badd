#include "common/proc_stat.h"

#include "common/strings.h"

namespace tandem {

std::vector<std::string_view> StatFields(std::string_view stat) {
  const size_t after_name = stat.rfind(')');
  if (after_name == std::string_view::npos || after_name + 2 >= stat.size()) return {};
  return Split(stat.substr(after_name + 2), ' ');
}

}  // namespace tandem
