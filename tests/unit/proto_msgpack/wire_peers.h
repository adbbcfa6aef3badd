#pragma once

// Both endpoints as a test holds them: what they deliver, one thing at a time. Thread: the test's.

#include <fcntl.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "proto_msgpack/codec.h"
#include "tests/support/wire_pair.h"

#include <catch2/catch.hpp>

namespace tandem::wire {

struct Engine {
  explicit Engine(const TempFolder& folder, int index = 0)
      : Engine(EngineIn(folder, index), TestReadyResponse(index)) {}
  Engine(EngineEndpointOptions options, EngineCoreReadyResponse ready)
      : endpoint(std::move(options), inbox.Pusher()) {
    REQUIRE(endpoint.Start().ok());
    endpoint.AnnounceReady(std::move(ready));
  }
  template <class T>
  T Next() {
    std::optional<EngineInput> input = inbox.Next();
    REQUIRE(input.has_value());
    REQUIRE(std::holds_alternative<T>(*input));
    return std::get<T>(std::move(*input));
  }

  Inbox<EngineInput> inbox;
  EngineEndpoint endpoint;
};

struct Frontend {
  explicit Frontend(const TempFolder& folder, int num_engines = 1, int num_clients = 1)
      : inboxes(static_cast<size_t>(num_clients)),
        endpoint(FrontendIn(folder, num_engines, num_clients)) {
    for (int i = 0; i < num_clients; ++i) {
      endpoint.SetClient(i, CallbacksInto(&inboxes[static_cast<size_t>(i)]));
    }
    REQUIRE(endpoint.Start().ok());
  }
  // Beside one that serves.
  Frontend(const TempFolder& folder, const Frontend& serving, std::string owner,
           int num_clients = 1)
      : inboxes(static_cast<size_t>(num_clients)),
        endpoint(OwnedBy(std::move(owner), FrontendIn(folder, 1, num_clients))) {
    for (int i = 0; i < num_clients; ++i) {
      endpoint.SetClient(i, CallbacksInto(&inboxes[static_cast<size_t>(i)]));
    }
    UniqueFd lock(fcntl(serving.endpoint.folder()->lock_fd(), F_DUPFD_CLOEXEC, 0));
    REQUIRE(endpoint.StartBeside(std::move(lock)).ok());
  }
  static FrontendEndpointOptions OwnedBy(std::string owner, FrontendEndpointOptions options) {
    options.owner = std::move(owner);
    return options;
  }
  ClientEvent Next(ClientEvent::Kind kind, size_t client_index = 0) {
    std::optional<ClientEvent> event = inboxes[client_index].Next();
    REQUIRE(event.has_value());
    REQUIRE(event->kind == kind);
    return std::move(*event);
  }
  void Add(const std::string& id, int engine_index = 0, int client_index = 0) {
    EngineCoreRequest request;
    request.request_id = id;
    request.prompt_token_ids = {1, 2, 3};
    request.client_index = client_index;
    EncodedMessage message;
    Encode(request, &message);
    endpoint.Send(client_index, engine_index, RequestType::kAdd, std::move(message));
  }

  std::vector<Inbox<ClientEvent>> inboxes;
  FrontendEndpoint endpoint;
};

inline EngineCoreOutputs OneToken(const std::string& id, TokenId token_id, int engine_index = 0) {
  EngineCoreOutputs outputs;
  outputs.engine_index = engine_index;
  outputs.timestamp = 1.5;
  outputs.outputs.resize(1);
  outputs.outputs[0].request_id = id;
  outputs.outputs[0].new_token_ids = {token_id};
  return outputs;
}

// A request there and a token back.
inline void CheckTraffic(Frontend& frontend, Engine& engine, int engine_index = 0,
                         int client_index = 0) {
  frontend.Add("traffic", engine_index, client_index);
  CHECK(engine.Next<EngineCoreRequest>().request_id == "traffic");
  engine.endpoint.Send(client_index, OneToken("traffic", 7, engine_index));
  const ClientEvent event =
      frontend.Next(ClientEvent::Kind::kOutputs, static_cast<size_t>(client_index));
  CHECK(event.outputs == OneToken("traffic", 7, engine_index));
}

}  // namespace tandem::wire
