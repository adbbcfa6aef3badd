#include "deploy/cli/hub/hub_settings.h"

#include <algorithm>
#include <cstdlib>

#include "common/read_file.h"
#include "common/strings.h"
#include "deploy/cli/hub_cache.h"

namespace tandem {
namespace {

constexpr int64_t kMaxTokenBytes = 4096;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : std::string(StripAscii(value));
}

StatusOr<std::string> HuggingFaceToken() {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (std::string token = Variable(name); !token.empty()) return token;
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFileIfAny(HuggingFaceTokenFile(), kMaxTokenBytes));
  return std::string(StripAscii(text));
}

StatusOr<WebUrl> Endpoint(bool is_model_scope) {
  std::string text = Variable(is_model_scope ? "MODELSCOPE_ENDPOINT" : "HF_ENDPOINT");
  if (text.empty() && is_model_scope) text = Variable("MODELSCOPE_DOMAIN");
  if (text.empty()) text = is_model_scope ? "https://www.modelscope.cn" : "https://huggingface.co";
  if (text.find("://") == text.npos) text.insert(0, "https://");
  ASSIGN_OR_RETURN(WebUrl url, ParseWebUrl(text));
  while (url.target.ends_with('/')) url.target.pop_back();
  return url;
}

}  // namespace

StatusOr<HubSettings> HubSettingsOfEnvironment(const std::string& token) {
  if (IsHubOffline()) {
    return FailedPreconditionError("HF_HUB_OFFLINE is set: nothing is downloaded");
  }
  HubSettings settings;
  settings.is_model_scope = UsesModelScope();
  StatusOr<WebUrl> endpoint = Endpoint(settings.is_model_scope);
  if (!endpoint.ok()) return endpoint.status().WithContext("the hub's address");
  settings.endpoint = *std::move(endpoint);
  if (!token.empty()) {
    settings.token = token;
  } else if (settings.is_model_scope) {
    settings.token = Variable("MODELSCOPE_API_TOKEN");
  } else {
    ASSIGN_OR_RETURN(settings.token, HuggingFaceToken());
  }
  if (!std::ranges::all_of(settings.token, [](char c) { return c > 0x20 && c < 0x7F; })) {
    return InvalidArgumentError("the hub's token must be printable ASCII without blanks");
  }
  if (const std::string text = Variable("HF_HUB_DOWNLOAD_TIMEOUT"); !text.empty()) {
    const auto seconds = ParseNumber<int>(text);
    if (!seconds || *seconds < 1) {
      return InvalidArgumentError("HF_HUB_DOWNLOAD_TIMEOUT=" + text + ": must be whole seconds");
    }
    settings.silence_s = *seconds;
  }
  return settings;
}

}  // namespace tandem
