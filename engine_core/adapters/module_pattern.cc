#include "engine_core/adapters/module_pattern.h"

#include <algorithm>
#include <optional>

#include "common/check.h"
#include "common/pcre2_text.h"
#include "common/shorten.h"

namespace tandem {
namespace {

constexpr size_t kMaxExpressionBytes = 4096;
// A path has some 40 characters, and each of its dots is a begin: a step or two for each.
constexpr uint32_t kMaxSteps = 10'000;
constexpr uint32_t kMaxHeapKiB = 1024;
constexpr char kAny = '\n';

std::string Shown(const std::string& key) { return "\"" + Shorten(key) + "\""; }

// A key as the name that it stands for; nullopt: it has operators, or characters that are to mean
// more than themselves.
std::optional<std::string> NameOf(std::string_view key) {
  constexpr std::string_view kOperators = "\\^$*+?()[]{}|\n";
  std::string name;
  for (size_t i = 0; i < key.size(); ++i) {
    if (key.substr(i).starts_with("\\.")) {
      name += '.';
      ++i;
    } else if (kOperators.find(key[i]) != std::string_view::npos) {
      return std::nullopt;
    } else {
      name += key[i] == '.' ? kAny : key[i];
    }
  }
  return name;
}

}  // namespace

struct ModulePattern::CompiledKey {
  std::string key;
  pcre2_code* code = nullptr;

  CompiledKey() = default;
  CompiledKey(const CompiledKey&) = delete;
  CompiledKey& operator=(const CompiledKey&) = delete;
  ~CompiledKey() { pcre2_code_free(code); }
};

StatusOr<ModulePattern> ModulePattern::Parse(const std::string& key) {
  ModulePattern pattern;
  pattern.is_whole_path_ = key.starts_with('^');
  if (std::optional<std::string> name = NameOf(key.substr(pattern.is_whole_path_ ? 1 : 0))) {
    pattern.name_ = *std::move(name);
    return pattern;
  }
  if (key.size() > kMaxExpressionBytes) {
    return InvalidArgumentError("regular expression " + Shown(key) + " of " +
                                std::to_string(key.size()) + " bytes, at most " +
                                std::to_string(kMaxExpressionBytes) + " are allowed");
  }
  const std::string whole = "(.*\\.)?(" + key + ")$";
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto expression = std::make_shared<CompiledKey>();
  expression->key = key;
  expression->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(whole.data()), whole.size(),
                    PCRE2_ANCHORED | PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  if (expression->code == nullptr) {
    return InvalidArgumentError("regular expression " + Shown(key) + ": " + Pcre2ErrorText(error));
  }
  pattern.expression_ = std::move(expression);
  return pattern;
}

bool ModulePattern::MatchesName(std::string_view module) const {
  if (module.size() < name_.size()) return false;
  const size_t before = module.size() - name_.size();
  const bool is_begin = before == 0 || (!is_whole_path_ && module[before - 1] == '.');
  return is_begin && std::equal(name_.begin(), name_.end(), module.begin() + before,
                                [](char ours, char c) { return ours == kAny || ours == c; });
}

StatusOr<bool> ModulePattern::Matches(std::string_view module) const {
  if (!is_expression()) return MatchesName(module);
  pcre2_match_context* const context = pcre2_match_context_create(nullptr);
  pcre2_match_data* const data = pcre2_match_data_create(1, nullptr);
  CHECK(context != nullptr && data != nullptr);
  pcre2_set_match_limit(context, kMaxSteps);
  pcre2_set_heap_limit(context, kMaxHeapKiB);
  const int result = pcre2_match(expression_->code, reinterpret_cast<PCRE2_SPTR>(module.data()),
                                 module.size(), 0, PCRE2_NO_JIT, data, context);
  pcre2_match_data_free(data);
  pcre2_match_context_free(context);
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  return ResourceExhaustedError("regular expression " + Shown(expression_->key) + " for module " +
                                std::string(module) + ": " + Pcre2ErrorText(result));
}

}  // namespace tandem
