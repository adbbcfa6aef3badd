#pragma once

// What may change while requests run is read again at SIGHUP: the settings file, the API
// keys and the certificates. They are applied if all of them are good.
// Thread: main builds it; Reload runs on the first shard. Borrows everything.

#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "frontend/api/admission_gate.h"
#include "frontend/api/context.h"
#include "frontend/config.h"
#include "frontend/engine_client/engine_client.h"
#include "frontend/http/listener.h"

namespace tandem {

// Null without --ssl-certfile.
StatusOr<std::shared_ptr<const TlsContext>> LoadTls(const FrontendConfig& config);

// Engines of ours follow the level of the settings file. Empty: the file has never had one.
void SendLogLevel(const std::string& level, EngineClient* client);

struct Reloading {
  const FrontendConfig* given;  // without the settings file
  const std::vector<std::unique_ptr<ApiContext>>* contexts;
  const std::vector<std::unique_ptr<EngineClient>>* clients;
  AdmissionGate* admission_gate;
  HttpServer* server;
  std::string* engine_log_level;

  // What is wrong is logged, and everything stays as it was.
  void Reload() const;
};

}  // namespace tandem
