#pragma once

// Which hub, with which token: what the environment says. Thread: main.

#include <string>

#include "common/status.h"
#include "frontend/web/web_url.h"

namespace tandem {

struct HubSettings {
  bool is_model_scope = false;
  WebUrl endpoint;  // its target is a prefix of all paths, without a slash at its end
  std::string token;
  double silence_s = 30;  // without a byte from the hub
};

// HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME (its file "token"), HF_HUB_DOWNLOAD_TIMEOUT; with
// VLLM_USE_MODELSCOPE: MODELSCOPE_ENDPOINT or MODELSCOPE_DOMAIN, MODELSCOPE_API_TOKEN.
// A token of a flag has precedence.
// INVALID_ARGUMENT: one of them cannot be used; FAILED_PRECONDITION: HF_HUB_OFFLINE.
StatusOr<HubSettings> HubSettingsOfEnvironment(const std::string& token = "");

}  // namespace tandem
