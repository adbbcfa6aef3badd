#include "frontend/reloading.h"

#include <sys/stat.h>

#include <string>
#include <utility>

#include "common/log.h"
#include "common/log_level.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/wire_endpoint.h"

namespace tandem {
namespace {

// Opening a pipe that was read at the start waits for somebody who writes, and the shard with it.
Status CheckCanBeReadAgain(const FrontendConfig& config) {
  const std::pair<std::string, std::string> files[] = {{"--settings-file", config.settings_file},
                                                       {"--api-key-file", config.api_key_file},
                                                       {"--ssl-certfile", config.tls.certificate},
                                                       {"--ssl-keyfile", config.tls.key},
                                                       {"--ssl-ca-certs", config.tls.client_ca}};
  for (const auto& [flag, path] : files) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) continue;  // the reading says why
    if (S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode)) continue;
    return FailedPreconditionError(flag + ": " + path + ": is no file, and is not read again");
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<const TlsContext>> LoadTls(const FrontendConfig& config) {
  if (config.tls.certificate.empty()) return std::shared_ptr<const TlsContext>();
  ASSIGN_OR_RETURN(std::shared_ptr<const TlsContext> tls, TlsContext::Load(config.tls));
  return tls;
}

void SendLogLevel(const std::string& level, EngineClient* client) {
  for (int i = 0; i < client->num_engines() && !level.empty(); ++i) {
    if (client->engine_info(i).peer() != wire::Peer::kTandem) continue;
    client->CallUtility(i, wire::kSetLogLevelMethod, wire::PackedArray({wire::PackedString(level)}),
                        [](const auto&) {});
  }
}

void Reloading::Reload() const {
  const Status readable = CheckCanBeReadAgain(*given);
  const StatusOr<FrontendConfig> config = readable.ok() ? WithSettingsFile(*given) : readable;
  auto keys = config.ok() ? ReadApiKeys(*config) : config.status();
  auto tls = keys.ok() ? LoadTls(*config) : keys.status();
  if (!tls.ok()) {
    LOG_ERROR << "[reload] everything stays as it was: " << tls.status().message();
    return;
  }
  if (const Status status = SetLogLevel(config->log_level); !status.ok()) {
    LOG_ERROR << "[reload] " << status.message();
  }
  LOG_INFO << "[reload] API keys: " << keys->size() << ", log level " << config->log_level
           << (*tls ? ", certificates read again" : "");
  admission_gate->SetLimits(config->admission);
  server->ReplaceApiKeys(std::move(keys).value(), config->server.limits.requests_per_key);
  if (*tls) server->ReplaceTls(*std::move(tls));
  if (!engine_log_level->empty() || config->log_level != given->log_level) {
    *engine_log_level = config->log_level;
    SendLogLevel(*engine_log_level, clients->front().get());
  }
  for (const auto& each : *contexts) {
    each->engine_client->RunOnShard(
        [context = each.get(), timeout_s = config->api.request_timeout_s] {
          context->options.request_timeout_s = timeout_s;
        });
  }
}

}  // namespace tandem
