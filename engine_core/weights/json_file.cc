#include "engine_core/weights/json_file.h"

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

constexpr std::streamoff kMaxFileBytes = 100'000'000;
constexpr int kMaxDepth = 32;

}  // namespace

StatusOr<std::string> ReadTextFile(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return ErrnoError(errno, "open " + path);
  const std::streamoff size = in.tellg();
  if (size < 0 || size > kMaxFileBytes) {
    return InvalidArgumentError(path + ": not a file of at most " + std::to_string(kMaxFileBytes) +
                                " bytes");
  }
  std::string text(static_cast<size_t>(size), '\0');
  in.seekg(0);
  in.read(text.data(), size);
  if (!in) return DataLossError(path + ": cannot be read");
  return text;
}

StatusOr<nlohmann::json> ParseJsonObject(std::string_view text) {
  using Json = nlohmann::json;
  bool too_deep = false;
  const auto limit_depth = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  Json json = Json::parse(text, limit_depth, /*allow_exceptions=*/false);
  if (too_deep) return InvalidArgumentError("JSON is nested too deep");
  if (json.is_discarded() || !json.is_object()) return InvalidArgumentError("not a JSON object");
  return json;
}

}  // namespace tandem
