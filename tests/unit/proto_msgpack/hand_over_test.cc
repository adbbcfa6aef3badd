// An engine and two frontends over real sockets, while the first frontend hands over to the second.

#include <memory>
#include <optional>
#include <string>

#include "wire_peers.h"

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

EngineCoreReadyResponse OwnReadyResponse() {
  EngineCoreReadyResponse ready = TestReadyResponse();
  ready.tandem_version = "1";
  ready.tokenizer_hash = "a";
  return ready;
}

std::unique_ptr<Engine> OwnEngine(const TempFolder& folder, bool takes_over = false,
                                  Inbox<Status>* left = nullptr) {
  EngineEndpointOptions options = EngineIn(folder);
  options.takes_over = takes_over;
  if (left != nullptr) options.on_leave = left->Pusher();
  return std::make_unique<Engine>(std::move(options), OwnReadyResponse());
}

// A request of one frontend's client, which the engine knows by `engine_client`, and a token back.
void CheckClient(Frontend& frontend, Engine& engine, int client, int engine_client) {
  frontend.Add("r", 0, client);
  const auto request = engine.Next<EngineCoreRequest>();
  CHECK(request.client_index == engine_client);
  engine.endpoint.Send(engine_client, OneToken("r", 5));
  CHECK(frontend.Next(ClientEvent::Kind::kOutputs, static_cast<size_t>(client)).outputs ==
        OneToken("r", 5));
}

void CallLeave(Frontend& frontend) {
  UtilityRequest call;
  call.method = kLeaveMethod;
  EncodedMessage message;
  Encode(call, &message);
  frontend.endpoint.Send(0, 0, RequestType::kUtility, std::move(message));
}

TEST_CASE("hand-over: an engine serves both frontends, whose clients lie end to end") {
  const TempFolder folder;
  auto first = std::make_unique<Frontend>(folder, 1, 2);
  const auto engine = OwnEngine(folder);
  first->Next(ClientEvent::Kind::kReady, 0);
  first->Next(ClientEvent::Kind::kReady, 1);
  Frontend second(folder, *first, "second", 3);
  first->endpoint.Introduce(second.endpoint.own_address());
  for (size_t client = 0; client < 3; ++client) second.Next(ClientEvent::Kind::kReady, client);
  CheckClient(*first, *engine, 1, 1);
  for (int client = 0; client < 3; ++client) CheckClient(second, *engine, client, client + 2);
  REQUIRE(second.endpoint.Publish().ok());
  CheckClient(*first, *engine, 0, 0);
  first->endpoint.Retire();
  first.reset();
  CHECK(engine->Next<ClientLost>().client_index + engine->Next<ClientLost>().client_index == 1);
  CheckClient(second, *engine, 2, 4);
  // A third one gets the room that the first has left, if it is enough.
  Frontend third(folder, second, "third", 2);
  second.endpoint.Introduce(third.endpoint.own_address());
  third.Next(ClientEvent::Kind::kReady, 1);
  CheckClient(third, *engine, 1, 1);
}

TEST_CASE("hand-over: a call is answered by the client that made it") {
  const TempFolder folder;
  Frontend first(folder);
  const auto engine = OwnEngine(folder);
  first.Next(ClientEvent::Kind::kReady);
  Frontend second(folder, first, "second");
  first.endpoint.Introduce(second.endpoint.own_address());
  second.Next(ClientEvent::Kind::kReady);
  for (Frontend* frontend : {&first, &second}) {
    EncodedMessage message;
    Encode(UtilityRequest{0, 9, std::string(kPingMethod), {}}, &message);
    frontend->endpoint.Send(0, 0, RequestType::kUtility, std::move(message));
    CHECK(frontend->Next(ClientEvent::Kind::kOutputs).outputs.utility_output->call_id == 9);
    Encode(UtilityRequest{0, 8, "is_sleeping", {}}, &message);
    frontend->endpoint.Send(0, 0, RequestType::kUtility, std::move(message));
    CHECK(engine->Next<UtilityRequest>().client_index == (frontend == &first ? 0 : 1));
  }
}

TEST_CASE("hand-over: statistics go to the frontend that serves") {
  const TempFolder folder;
  auto first = std::make_unique<Frontend>(folder);
  const auto engine = OwnEngine(folder);
  first->Next(ClientEvent::Kind::kReady);
  Frontend second(folder, *first, "second");
  first->endpoint.Introduce(second.endpoint.own_address());
  second.Next(ClientEvent::Kind::kReady);
  EngineCoreOutputs with_stats = OneToken("r", 1);
  with_stats.scheduler_stats.emplace().num_running_reqs = 3;
  engine->endpoint.Send(0, with_stats);
  CHECK(first->Next(ClientEvent::Kind::kOutputs).outputs == with_stats);
  REQUIRE(second.endpoint.Publish().ok());
  CheckClient(second, *engine, 0, 1);  // the engine has read what was sent before
  engine->endpoint.Send(0, with_stats);
  CHECK(first->Next(ClientEvent::Kind::kOutputs).outputs == OneToken("r", 1));
  CHECK(second.Next(ClientEvent::Kind::kOutputs).outputs.scheduler_stats->num_running_reqs == 3);
  first.reset();
  CHECK(engine->Next<ClientLost>().client_index == 0);
  EngineCoreOutputs only_stats;
  only_stats.scheduler_stats = with_stats.scheduler_stats;
  engine->endpoint.Send(0, only_stats);  // as an engine without requests sends them
  CHECK(second.Next(ClientEvent::Kind::kOutputs).outputs.scheduler_stats->num_running_reqs == 3);
}

TEST_CASE("hand-over: a frontend that ends before it serves leaves everything to the one before") {
  const TempFolder folder;
  auto first = std::make_unique<Frontend>(folder);
  auto engine = OwnEngine(folder);
  first->Next(ClientEvent::Kind::kReady);
  for (const bool has_published : {false, true}) {
    CAPTURE(has_published);
    {
      Frontend second(folder, *first, "second");
      first->endpoint.Introduce(second.endpoint.own_address());
      second.Next(ClientEvent::Kind::kReady);
      if (has_published) {
        REQUIRE(second.endpoint.Publish().ok());
        CheckClient(second, *engine, 0, 1);
      }
    }
    CHECK(engine->Next<ClientLost>().client_index == 1);
    REQUIRE(first->endpoint.Publish().ok());
    CheckClient(*first, *engine, 0, 0);
    // Engines that start find it.
    engine.reset();
    first->Next(ClientEvent::Kind::kLost);
    engine = OwnEngine(folder);
    first->Next(ClientEvent::Kind::kReady);
    CheckClient(*first, *engine, 0, 0);
  }
  first.reset();
  CHECK(engine->Next<ClientLost>().client_index == 0);
  Frontend next(folder);
  next.Next(ClientEvent::Kind::kReady);
}

TEST_CASE("hand-over: the end of the frontend that has taken over leads to the next one") {
  const TempFolder folder;
  Frontend first(folder);
  const auto engine = OwnEngine(folder, /*takes_over=*/true);
  first.Next(ClientEvent::Kind::kReady);
  {
    Frontend second(folder, first, "second");
    first.endpoint.Introduce(second.endpoint.own_address());
    second.Next(ClientEvent::Kind::kReady);
    REQUIRE(second.endpoint.Publish().ok());
    first.endpoint.Retire();
    CheckClient(second, *engine, 0, 1);
  }
  CHECK(engine->Next<ClientLost>().client_index == 1);
  FrontendEndpointOptions options = Frontend::OwnedBy("third", FrontendIn(folder));
  Inbox<ClientEvent> inbox;
  FrontendEndpoint third(options);
  third.SetClient(0, CallbacksInto(&inbox));
  REQUIRE(third.Start().ok());  // the lock is free
  CHECK(inbox.Next()->kind == ClientEvent::Kind::kReady);
  CheckClient(first, *engine, 0, 0);  // whose requests go on meanwhile
}

TEST_CASE("hand-over: an engine that starts meets every frontend that is there") {
  const TempFolder folder;
  Frontend first(folder);
  auto engine = OwnEngine(folder);
  first.Next(ClientEvent::Kind::kReady);
  Frontend second(folder, first, "second");
  first.endpoint.Introduce(second.endpoint.own_address());
  second.Next(ClientEvent::Kind::kReady);
  for (const bool second_serves : {false, true}) {
    CAPTURE(second_serves);
    if (second_serves) {
      REQUIRE(second.endpoint.Publish().ok());
      first.endpoint.Retire();
    }
    engine.reset();
    first.Next(ClientEvent::Kind::kLost);
    second.Next(ClientEvent::Kind::kLost);
    engine = OwnEngine(folder);
    first.Next(ClientEvent::Kind::kReady);
    second.Next(ClientEvent::Kind::kReady);
    CheckClient(first, *engine, 0, second_serves ? 1 : 0);
    CheckClient(second, *engine, 0, second_serves ? 0 : 1);
  }
}

TEST_CASE("hand-over: an engine leaves when the clients of both frontends have said so") {
  const TempFolder folder;
  Frontend first(folder);
  Inbox<Status> left;
  const auto engine = OwnEngine(folder, true, &left);
  first.Next(ClientEvent::Kind::kReady);
  Frontend second(folder, first, "second");
  first.endpoint.Introduce(second.endpoint.own_address());
  second.Next(ClientEvent::Kind::kReady);
  REQUIRE(second.endpoint.Publish().ok());
  // Another engine takes over from it at both.
  const auto next = OwnEngine(folder, true);
  CHECK(second.Next(ClientEvent::Kind::kReady).engine_index == 1);
  CHECK(first.Next(ClientEvent::Kind::kReady).engine_index == 1);
  CallLeave(second);
  CheckClient(second, *engine, 0, 1);
  CHECK_FALSE(left.box.WaitFor(std::chrono::milliseconds(0)));
  CallLeave(first);
  const std::optional<Status> why = left.Next();
  CHECK((why && why->ok()));
}

TEST_CASE("hand-over: a frontend that ends before it lets an engine go holds it no longer") {
  const TempFolder folder;
  auto first = std::make_unique<Frontend>(folder);
  Inbox<Status> left;
  const auto engine = OwnEngine(folder, false, &left);
  first->Next(ClientEvent::Kind::kReady);
  Frontend second(folder, *first, "second");
  first->endpoint.Introduce(second.endpoint.own_address());
  second.Next(ClientEvent::Kind::kReady);
  REQUIRE(second.endpoint.Publish().ok());
  first->endpoint.Retire();
  const auto next = OwnEngine(folder, true);
  CHECK(second.Next(ClientEvent::Kind::kReady).engine_index == 1);
  CallLeave(second);
  CheckClient(second, *engine, 0, 1);
  CHECK_FALSE(left.box.WaitFor(std::chrono::milliseconds(0)));
  first.reset();
  CHECK(engine->Next<ClientLost>().client_index == 0);
  const std::optional<Status> why = left.Next();
  CHECK((why && why->ok()));
}

// The engine's connection to the one that serves breaks; at the address it finds another one that
// it has met already.
TEST_CASE("hand-over: an engine does not meet a frontend twice") {
  const TempFolder folder;
  auto first = std::make_unique<Frontend>(folder);
  const auto engine = OwnEngine(folder, /*takes_over=*/true);
  first->Next(ClientEvent::Kind::kReady);
  Frontend second(folder, *first, "second");
  first->endpoint.Introduce(second.endpoint.own_address());
  second.Next(ClientEvent::Kind::kReady);
  REQUIRE(second.endpoint.folder()->Publish("handshake").ok());  // without a call to the engine
  first.reset();
  CHECK(engine->Next<ClientLost>().client_index == 0);
  CheckClient(second, *engine, 0, 1);
  REQUIRE(second.endpoint.Publish().ok());
  CheckClient(second, *engine, 0, 1);
  CHECK_FALSE(second.inboxes[0].box.WaitFor(std::chrono::milliseconds(50)));
}

TEST_CASE("hand-over: a frontend that is not there is given up") {
  const TempFolder folder;
  Frontend first(folder);
  const auto engine = OwnEngine(folder);
  first.Next(ClientEvent::Kind::kReady);
  first.endpoint.Introduce("ipc://" + folder.path() + "/wire/nobody");
  first.endpoint.Introduce("no address");
  CheckClient(first, *engine, 0, 0);
}

}  // namespace
}  // namespace tandem::wire
