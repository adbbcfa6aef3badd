#include "proto_msgpack/tcp_keys.h"

#include <filesystem>

#include "proto_msgpack/wire_endpoint.h"
#include "tests/support/files/temp_folder.h"
#include "tests/support/wire_pair.h"

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

TcpKeys Keys(const std::string& folder, TcpSide side) {
  auto keys = ReadTcpKeys(folder, side);
  INFO(keys.status().message());
  REQUIRE(keys.ok());
  return *std::move(keys);
}

TEST_CASE("tcp keys: each side has its own secret and the other's public key") {
  const TempFolder folder;
  const std::string set = folder.PathOf("set");
  REQUIRE(MakeTcpKeys(set).ok());
  const TcpKeys frontend = Keys(set, TcpSide::kFrontend), engine = Keys(set, TcpSide::kEngine);
  CHECK(frontend.peer_public == engine.own_public);
  CHECK(engine.peer_public == frontend.own_public);
  CHECK(engine.own_secret != frontend.own_secret);
  CHECK(engine.own_secret.size() == 40);
  CHECK(MakeTcpKeys(set).code() == StatusCode::kAlreadyExists);  // nothing is overwritten
  CHECK(Keys(set, TcpSide::kEngine).own_secret == engine.own_secret);
}

TEST_CASE("tcp keys: files of others' reading, of another form and missing ones are refused") {
  const TempFolder folder;
  const std::string set = folder.PathOf("set");
  CHECK(ReadTcpKeys(set, TcpSide::kEngine).status().message().find("engine.keys") !=
        std::string::npos);
  REQUIRE(MakeTcpKeys(set).ok());
  const std::filesystem::path path = set + "/engine.keys";
  std::filesystem::permissions(path, std::filesystem::perms::group_read,
                               std::filesystem::perm_options::add);
  CHECK(ReadTcpKeys(set, TcpSide::kEngine).status().message().find("chmod 600") !=
        std::string::npos);
  std::filesystem::permissions(
      path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::resize_file(path, 150);
  CHECK(ReadTcpKeys(set, TcpSide::kEngine).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("tcp keys: what reaches other hosts has keys or is asked for") {
  CHECK(CheckTcp("ipc:///x/y", "", false).ok());
  CHECK(CheckTcp("tcp://127.0.0.1:1", "", false).ok());
  CHECK(CheckTcp("tcp://10.0.0.1:1", "folder", false).ok());
  CHECK(CheckTcp("tcp://10.0.0.1:1", "", true).ok());
  for (const char* address : {"tcp://10.0.0.1:1", "tcp://*:1", "tcp://host:1"}) {
    CAPTURE(address);
    CHECK(CheckTcp(address, "", false).message().find("--insecure-tcp") != std::string::npos);
  }
  CHECK_FALSE(CheckTcp("tcp://10.0.0.1:1", "folder", true).ok());
}

TEST_CASE("tcp keys: a frontend lets engines of its set in alone") {
  const TempFolder folder;
  REQUIRE(MakeTcpKeys(folder.PathOf("ours")).ok());
  REQUIRE(MakeTcpKeys(folder.PathOf("theirs")).ok());
  const TcpKeys ours = Keys(folder.PathOf("ours"), TcpSide::kEngine);
  TcpKeys stranger = Keys(folder.PathOf("theirs"), TcpSide::kEngine);
  stranger.peer_public = ours.peer_public;  // it knows the frontend

  FrontendEndpointOptions options = FrontendIn(folder);
  options.handshake_address = "tcp://127.0.0.1:0";
  options.data_address = "tcp://127.0.0.1";
  options.num_engines = 3;
  options.tcp_keys = Keys(folder.PathOf("ours"), TcpSide::kFrontend);
  Inbox<ClientEvent> events;
  FrontendEndpoint frontend(options);
  frontend.SetClient(0, CallbacksInto(&events));
  REQUIRE(frontend.Start().ok());

  Inbox<EngineInput> inbox;
  const auto start = [&](int index, std::optional<TcpKeys> keys) {
    EngineEndpointOptions engine;
    engine.handshake_address = frontend.handshake_address();
    engine.engine_index = index;
    engine.tcp_keys = std::move(keys);
    auto endpoint = std::make_unique<EngineEndpoint>(engine, inbox.Pusher());
    REQUIRE(endpoint->Start().ok());
    endpoint->AnnounceReady(TestReadyResponse());
    return endpoint;
  };
  // They come first, and again and again.
  const auto first = start(1, stranger);
  const auto second = start(2, std::nullopt);
  for (int round = 0; round < 3; ++round) {
    const auto good = start(0, ours);
    const auto ready = events.Next();
    CHECK(ready->kind == ClientEvent::Kind::kReady);
    CHECK(ready->engine_index == 0);
    good->Close();
    CHECK(events.Next()->kind == ClientEvent::Kind::kLost);
  }
}

}  // namespace
}  // namespace tandem::wire
