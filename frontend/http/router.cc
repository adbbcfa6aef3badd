#include "frontend/http/router.h"

#include <algorithm>

#include "common/strings.h"

namespace tandem {

namespace {

// As forms encode a value: a plus sign is a blank.
std::string DecodeQueryValue(std::string_view text) {
  std::string value(text);
  std::replace(value.begin(), value.end(), '+', ' ');
  return PercentDecode(value);
}

bool Matches(std::string_view pattern, std::string_view path) {
  while (true) {
    const size_t special = pattern.find_first_of("{*");
    if (special == std::string_view::npos) return pattern == path;
    if (!path.starts_with(pattern.substr(0, special))) return false;
    path.remove_prefix(special);
    if (pattern[special] == '*') return true;
    const size_t close = pattern.find('}', special);
    const bool takes_rest = pattern.substr(special, close - special).ends_with(":path");
    pattern.remove_prefix(close + 1);
    const size_t end = takes_rest ? path.size() : std::min(path.find('/'), path.size());
    if (end == 0) return false;
    path.remove_prefix(end);
  }
}

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [header, value] : headers) {
    if (header == name) return value;
  }
  return {};
}

std::vector<std::string> HttpRequest::QueryAll(std::string_view name) const {
  std::vector<std::string> values;
  for (const std::string_view pair : Split(query, '&')) {
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) != name) continue;
    values.push_back(equals == std::string_view::npos ? ""
                                                      : DecodeQueryValue(pair.substr(equals + 1)));
  }
  return values;
}

std::string HttpRequest::PathAfter(std::string_view prefix) const {
  if (!path.starts_with(prefix)) return "";
  return PercentDecode(std::string_view(path).substr(prefix.size()));
}

std::string HttpRequest::PathPart(size_t index) const {
  const std::vector<std::string_view> parts = Split(path, '/');
  return index + 1 < parts.size() ? PercentDecode(parts[index + 1]) : "";
}

std::string HttpRequest::Query(std::string_view name) const {
  const std::vector<std::string> values = QueryAll(name);
  return values.empty() ? "" : values.front();
}

Router::Match Router::Find(std::string_view method, std::string_view path) const {
  Match match;
  const bool is_exact =
      std::ranges::any_of(routes_, [path](const Route& route) { return route.path == path; });
  for (const Route& route : routes_) {
    if (is_exact ? route.path != path : !Matches(route.path, path)) continue;
    if (route.method == method || (route.method == "GET" && method == "HEAD")) {
      match.route = &route;
      return match;
    }
    match.allow += match.allow.empty() ? route.method : ", " + route.method;
  }
  return match;
}

bool ConstantTimeEqual(std::string_view a, std::string_view b) {
  // The length of a key is not a secret; its contents are.
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace tandem
