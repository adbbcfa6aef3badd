#include "deploy/cli/bench/bench_figures.h"

#include <nlohmann/json.hpp>

#include "common/read_file.h"
#include "common/strings.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxFiguresBytes = int64_t{1} << 30;

std::string StringField(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

StatusOr<BenchFigures> FromJson(const Json& object) {
  if (!object.is_object() || !object.contains("completed")) {
    return InvalidArgumentError("not the result of a bench: no object with \"completed\"");
  }
  BenchFigures figures;
  for (const auto& [name, value] : object.items()) {
    if (value.is_number()) figures.numbers[name] = value.get<double>();
  }
  figures.label = StringField(object, "label");
  figures.backend = StringField(object, "backend");
  return figures;
}

}  // namespace

std::optional<double> BenchFigures::Find(std::string_view name) const {
  const auto found = numbers.find(name);
  return found == numbers.end() ? std::nullopt : std::optional<double>(found->second);
}

StatusOr<BenchFigures> ParseBenchFigures(std::string_view json) {
  return FromJson(Json::parse(json, nullptr, false));
}

StatusOr<BenchFigures> ReadBenchFigures(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFiguresBytes));
  StatusOr<BenchFigures> figures = ParseBenchFigures(text);
  return figures.ok() ? std::move(figures) : figures.status().WithContext(path);
}

StatusOr<std::vector<BenchFigures>> ReadAllBenchFigures(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFiguresBytes));
  std::vector<Json> objects;
  const Json whole = Json::parse(text, nullptr, false);
  if (whole.is_array()) {
    for (const Json& item : whole) {
      if (!item.is_object() || !item.contains("error")) objects.push_back(item);
    }
  } else if (whole.is_object()) {
    objects.push_back(whole);
  } else {
    for (const std::string_view line : Split(text, '\n')) {
      if (!StripAscii(line).empty()) objects.push_back(Json::parse(line, nullptr, false));
    }
  }
  std::vector<BenchFigures> all;
  for (const Json& object : objects) {
    StatusOr<BenchFigures> figures = FromJson(object);
    if (!figures.ok()) return figures.status().WithContext(path);
    all.push_back(std::move(*figures));
  }
  return all;
}

}  // namespace tandem
