// Both endpoints over real sockets in one process: start-up, traffic, and every way in which a peer
// appears and disappears.

#include "proto_msgpack/wire_endpoint.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/random.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/wire_endpoint_socket.h"
#include "wire_peers.h"

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

// The name of a socket that a frontend of this process binds.
std::string OwnName(const std::string& name) { return name + "_" + std::to_string(getpid()); }

TEST_CASE("wire: an engine started before its frontend becomes ready and serves") {
  const TempFolder folder;
  Engine engine(folder);
  Frontend frontend(folder);
  const ClientEvent ready = frontend.Next(ClientEvent::Kind::kReady);
  CHECK(ready.engine_index == 0);
  CHECK(ready.response == TestReadyResponse());
  CheckTraffic(frontend, engine);

  EncodedMessage message;
  Encode(AbortRequest{"a", "b"}, &message);
  frontend.endpoint.Send(0, 0, RequestType::kAbort, message);
  CHECK(engine.Next<AbortRequest>() == AbortRequest{"a", "b"});
  Encode(UtilityRequest{0, 9, "is_sleeping", {}}, &message);
  frontend.endpoint.Send(0, 0, RequestType::kUtility, message);
  CHECK(engine.Next<UtilityRequest>().call_id == 9);
}

TEST_CASE("wire: a frontend waits for the engine's model before it is ready") {
  const TempFolder folder;
  Frontend frontend(folder);
  Inbox<EngineInput> inbox;
  EngineEndpoint endpoint(EngineIn(folder), inbox.Pusher());
  REQUIRE(endpoint.Start().ok());
  CHECK_FALSE(frontend.inboxes[0].box.WaitFor(std::chrono::milliseconds(100)));
  endpoint.AnnounceReady(TestReadyResponse());
  frontend.Next(ClientEvent::Kind::kReady);
}

TEST_CASE("wire: several engines and several clients reach each other, and only each other") {
  const TempFolder folder;
  Frontend frontend(folder, 2, 2);
  Engine first(folder, 0);
  Engine second(folder, 1);
  for (size_t client = 0; client < 2; ++client) {
    const ClientEvent a = frontend.Next(ClientEvent::Kind::kReady, client);
    const ClientEvent b = frontend.Next(ClientEvent::Kind::kReady, client);
    CHECK(a.engine_index + b.engine_index == 1);
  }
  for (int client = 0; client < 2; ++client) {
    CheckTraffic(frontend, first, 0, client);
    CheckTraffic(frontend, second, 1, client);
  }
}

bool HasIpv6() {
  const int fd = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 loopback = {};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const bool has =
      fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)) == 0;
  if (fd >= 0) close(fd);
  return has;
}

TEST_CASE("wire: tcp addresses work, port 0 is a free one and is reported") {
  const TempFolder folder;
  const std::string host = GENERATE("127.0.0.1", "[::1]");
  if (host == "[::1]" && !HasIpv6()) return;
  FrontendEndpointOptions options = FrontendIn(folder);
  options.handshake_address = "tcp://" + host + ":0";
  options.data_address = "tcp://" + host;
  Inbox<ClientEvent> event;
  FrontendEndpoint frontend(options);
  frontend.SetClient(0, CallbacksInto(&event));
  REQUIRE(frontend.Start().ok());
  EngineEndpointOptions engine_options;
  engine_options.handshake_address = frontend.handshake_address();
  Inbox<EngineInput> inbox;
  {
    EngineEndpoint engine(engine_options, inbox.Pusher());
    REQUIRE(engine.Start().ok());
    engine.AnnounceReady(TestReadyResponse());
    CHECK(event.Next()->kind == ClientEvent::Kind::kReady);
  }
  CHECK(event.Next()->kind == ClientEvent::Kind::kLost);
}

TEST_CASE("wire: an engine that disappears is reported lost, and serves again when it is back") {
  const TempFolder folder;
  Frontend frontend(folder, 1, 2);
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    Engine engine(folder);
    frontend.Next(ClientEvent::Kind::kReady, 0);
    frontend.Next(ClientEvent::Kind::kReady, 1);
    CheckTraffic(frontend, engine, 0, 1);
    engine.endpoint.Close();
    const ClientEvent lost = frontend.Next(ClientEvent::Kind::kLost, 0);
    CHECK(lost.why.code() == StatusCode::kUnavailable);
    frontend.Next(ClientEvent::Kind::kLost, 1);
  }
}

TEST_CASE("wire: outputs sent before a clean close arrive before the loss is reported") {
  const TempFolder folder;
  Frontend frontend(folder);
  Engine engine(folder);
  frontend.Next(ClientEvent::Kind::kReady);
  CheckTraffic(frontend, engine);  // READY does not wait for the connection of outputs
  for (TokenId i = 0; i < 100; ++i) engine.endpoint.Send(0, OneToken("r", i));
  engine.endpoint.Close();
  for (TokenId i = 0; i < 100; ++i) {
    CHECK(frontend.Next(ClientEvent::Kind::kOutputs).outputs.outputs[0].new_token_ids[0] == i);
  }
  frontend.Next(ClientEvent::Kind::kLost);
}

TEST_CASE("wire: an engine that reports its own death is lost") {
  const TempFolder folder;
  Frontend frontend(folder);
  Engine engine(folder);
  frontend.Next(ClientEvent::Kind::kReady);
  engine.endpoint.CloseDead();
  CHECK(frontend.Next(ClientEvent::Kind::kLost).why.message() ==
        "engine 0 is lost: it reported its own death");
  Engine next(folder);
  frontend.Next(ClientEvent::Kind::kReady);
  CheckTraffic(frontend, next);
}

TEST_CASE("wire: an engine drops a frontend that disappears and serves the next one") {
  const TempFolder folder;
  Engine engine(folder);
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    Frontend frontend(folder, 1, 2);
    frontend.Next(ClientEvent::Kind::kReady, 0);
    frontend.Next(ClientEvent::Kind::kReady, 1);
    CheckTraffic(frontend, engine, 0, 1);
    frontend.endpoint.Close();
    CHECK(engine.Next<ClientLost>().client_index + engine.Next<ClientLost>().client_index == 1);
    engine.endpoint.Send(0, OneToken("for a frontend that is gone", 1));
  }
}

// The engine's old connection finds the new frontend's socket before the engine has seen it close.
TEST_CASE("wire: a frontend replaced before the engine noticed gets its HELLO") {
  const TempFolder folder;
  std::atomic<bool> is_held{false}, may_go{false};
  Mailbox<EngineInput> box([&] {  // on the wire's thread
    is_held = true;
    is_held.notify_one();
    may_go.wait(false);
  });
  EngineEndpoint endpoint(EngineIn(folder), [&](EngineInput input) { box.Push(std::move(input)); });
  const auto let_go = [&](void*) {
    may_go = true;
    may_go.notify_one();
  };
  const std::unique_ptr<void, decltype(let_go)> at_end(&may_go, let_go);
  REQUIRE(endpoint.Start().ok());
  endpoint.AnnounceReady(TestReadyResponse());
  {
    Frontend frontend(folder);
    frontend.Next(ClientEvent::Kind::kReady);
    frontend.Add("held");
    is_held.wait(false);
  }
  std::filesystem::create_directory(folder.path() + "/wire");
  zmq::context_t context = MakeContext();
  Socket handshake, input;
  handshake.Open(context, zmq::socket_type::router);
  handshake.FollowPeers();  // an old handshake may still linger
  input.Open(context, zmq::socket_type::router);
  input.FollowPeers();
  input.Monitor(context);
  REQUIRE(handshake.Bind("ipc://" + folder.path() + "/wire/handshake").ok());
  REQUIRE(input.Bind("ipc://" + folder.path() + "/wire/" + OwnName("input_0")).ok());
  const auto wait_for = [](Socket& socket) {
    PollSet poll;
    poll.Add(socket);
    return poll.Wait(10'000);
  };
  REQUIRE(wait_for(input));  // the engine connects
  const std::string identity = EngineIdentity(0);
  const std::string_view frames[] = {identity, "?"};
  while (!input.Send(frames)) std::this_thread::yield();  // until the engine, too, is connected
  let_go(nullptr);
  CHECK(wait_for(handshake));
  std::vector<EngineInput> inputs;
  box.Drain(&inputs);
  REQUIRE(inputs.size() == 2);  // the loss is reported once
  CHECK(std::holds_alternative<ClientLost>(inputs[1]));
}

TEST_CASE("wire: a second engine of the same index waits until the first is gone") {
  const TempFolder folder;
  Frontend frontend(folder);
  auto first = std::make_unique<Engine>(folder);
  frontend.Next(ClientEvent::Kind::kReady);
  Engine second(folder);
  CHECK_FALSE(frontend.inboxes[0].box.WaitFor(std::chrono::milliseconds(100)));
  CheckTraffic(frontend, *first);
  first.reset();
  frontend.Next(ClientEvent::Kind::kLost);
  frontend.Next(ClientEvent::Kind::kReady);
  CheckTraffic(frontend, second);
}

// One of ours that takes over, if its tokenizer is the other one's. `left` gets why it is to leave.
std::unique_ptr<Engine> Successor(const TempFolder& folder, const std::string& tokenizer,
                                  Inbox<Status>* left, int index = 0) {
  EngineEndpointOptions options = EngineIn(folder, index);
  options.takes_over = true;
  options.on_leave = left->Pusher();
  EngineCoreReadyResponse ready = TestReadyResponse(index);
  ready.tandem_version = "1";
  ready.tokenizer_hash = tokenizer;
  return std::make_unique<Engine>(std::move(options), std::move(ready));
}

void SendLeave(Frontend& frontend, int seat, int client_index) {
  UtilityRequest call;
  call.client_index = client_index;
  call.method = kLeaveMethod;
  EncodedMessage message;
  Encode(call, &message);
  frontend.endpoint.Send(client_index, seat, RequestType::kUtility, std::move(message));
}

TEST_CASE("wire: an engine takes over from one of its index, and that one from it") {
  const TempFolder folder;
  Frontend frontend(folder, 2, 2);
  Inbox<Status> left;
  std::unique_ptr<Engine> engine = Successor(folder, "a", &left, 1);
  CHECK(frontend.Next(ClientEvent::Kind::kReady).engine_index == 1);
  frontend.Next(ClientEvent::Kind::kReady, 1);
  for (const int seat : {3, 1, 3}) {
    const int before = seat == 3 ? 1 : 3;
    std::unique_ptr<Engine> next = Successor(folder, "a", &left, 1);
    CHECK(frontend.Next(ClientEvent::Kind::kReady).engine_index == seat);
    CHECK(frontend.Next(ClientEvent::Kind::kReady, 1).engine_index == seat);
    CheckTraffic(frontend, *engine, before);  // both are there
    CheckTraffic(frontend, *next, seat, 1);
    SendLeave(frontend, before, 0);
    CheckTraffic(frontend, *engine, before);
    CHECK_FALSE(left.box.WaitFor(std::chrono::milliseconds(0)));
    SendLeave(frontend, before, 1);
    const std::optional<Status> why = left.Next();
    CHECK((why && why->ok()));
    CheckTraffic(frontend, *engine, before);  // what it has may end
    engine = std::move(next);
    CHECK(frontend.Next(ClientEvent::Kind::kLost).engine_index == before);
    CHECK(frontend.Next(ClientEvent::Kind::kLost, 1).engine_index == before);
  }
  CheckTraffic(frontend, *engine, 3);
}

TEST_CASE("wire: an engine that may not take over gets the reason") {
  const TempFolder folder;
  Frontend frontend(folder);
  Inbox<Status> left;
  auto first = std::make_unique<Engine>(folder);  // of another program
  frontend.Next(ClientEvent::Kind::kReady);
  auto second = Successor(folder, "a", &left);
  std::optional<Status> why = left.Next();
  REQUIRE(why.has_value());
  CHECK(why->message() == "only Tandem's engines take over from each other");
  CheckTraffic(frontend, *first);
  second.reset();
  first.reset();
  frontend.Next(ClientEvent::Kind::kLost);
  second = Successor(folder, "a", &left);
  frontend.Next(ClientEvent::Kind::kReady);
  const auto third = Successor(folder, "b", &left);
  why = left.Next();
  REQUIRE(why.has_value());
  CHECK(why->message().starts_with("the tokenizer in the model's folder is not"));
  CheckTraffic(frontend, *second);
}

TEST_CASE("wire: a third engine waits until the first one has left") {
  const TempFolder folder;
  Frontend frontend(folder);
  Inbox<Status> left;
  auto first = Successor(folder, "a", &left);
  CHECK(frontend.Next(ClientEvent::Kind::kReady).engine_index == 0);
  auto second = Successor(folder, "a", &left);
  CHECK(frontend.Next(ClientEvent::Kind::kReady).engine_index == 1);
  const auto third = Successor(folder, "a", &left);
  CheckTraffic(frontend, *first, 0);
  CheckTraffic(frontend, *second, 1);
  first.reset();
  CHECK(frontend.Next(ClientEvent::Kind::kLost).engine_index == 0);
  CHECK(frontend.Next(ClientEvent::Kind::kReady).engine_index == 0);
  CheckTraffic(frontend, *third, 0);
  CheckTraffic(frontend, *second, 1);
}

// Engine 0 as its sockets, which the test opens and closes one by one.
struct BareEngine {
  explicit BareEngine(const TempFolder& folder) : base("ipc://" + folder.path() + "/wire/") {
    EngineStatus hello;
    hello.status = kStatusHello;
    handshake = Connect("handshake", hello);
    PollSet init;
    init.Add(handshake);
    REQUIRE(init.Wait(10'000));
  }
  template <class Message>
  Socket Connect(const std::string& name, const Message& message) {
    Socket socket;
    socket.Open(context, zmq::socket_type::dealer);
    socket.SetIdentity(EngineIdentity(0));
    REQUIRE(socket.Connect(base + name).ok());
    Encode(message, &encoded);
    const std::string_view frames[] = {encoded.body};
    REQUIRE(socket.Send(frames));
    return socket;
  }
  Socket ConnectInput(int client_index) {
    return Connect(OwnName("input_" + std::to_string(client_index)), TestReadyResponse());
  }
  // Returns once the frontend has accepted it; its first message says nothing.
  zmq::socket_t ConnectOutput() {
    zmq::socket_t output(context, zmq::socket_type::push);
    output.set(zmq::sockopt::immediate, true);
    output.set(zmq::sockopt::sndhwm, 0);
    output.connect(base + OwnName("output_0"));
    output.send(zmq::str_buffer("?"));
    return output;
  }
  void Send(zmq::socket_t* output, const EngineCoreOutputs& outputs) {
    Encode(outputs, &encoded);
    output->send(zmq::buffer(encoded.body));
  }

  const std::string base;
  zmq::context_t context = MakeContext();
  EncodedMessage encoded;
  Socket handshake;
};

// Between hosts a connection may break by itself. The engine sends its ready response again on the
// new connection, and nothing on the others.
TEST_CASE("wire: an engine whose connection to one of several clients broke is ready again") {
  const TempFolder folder;
  Frontend frontend(folder, 1, 2);
  BareEngine engine(folder);
  const Socket first = engine.ConnectInput(0);
  Socket second = engine.ConnectInput(1);
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    frontend.Next(ClientEvent::Kind::kReady, 0);
    frontend.Next(ClientEvent::Kind::kReady, 1);
    second.Close();
    frontend.Next(ClientEvent::Kind::kLost, 0);
    frontend.Next(ClientEvent::Kind::kLost, 1);
    second = engine.ConnectInput(1);
  }
}

// As the kernel closes what a dead process had open, with much unread in one of them.
TEST_CASE("wire: an engine is lost after its outputs, whichever connection closes first") {
  const TempFolder folder;
  Frontend frontend(folder, 2);
  Engine other(folder, 1);
  CHECK(frontend.Next(ClientEvent::Kind::kReady).engine_index == 1);
  BareEngine engine(folder);
  Socket input = engine.ConnectInput(0);
  CHECK(frontend.Next(ClientEvent::Kind::kReady).engine_index == 0);
  zmq::socket_t output = engine.ConnectOutput();
  const bool is_known = GENERATE(false, true);  // the connection, by what came over it
  if (is_known) {
    engine.Send(&output, OneToken("r", 0));
    frontend.Next(ClientEvent::Kind::kOutputs);
  }
  input.Close();
  CHECK_FALSE(frontend.inboxes[0].box.WaitFor(std::chrono::milliseconds(100)));
  constexpr TokenId kNumOutputs = 1000;
  for (TokenId i = 0; i < kNumOutputs; ++i) engine.Send(&output, OneToken("r", i));
  output.close();
  for (TokenId i = 0; i < kNumOutputs; ++i) {
    CHECK(frontend.Next(ClientEvent::Kind::kOutputs).outputs.outputs[0].new_token_ids[0] == i);
  }
  CHECK(frontend.Next(ClientEvent::Kind::kLost).engine_index == 0);
  CheckTraffic(frontend, other, 1);
  Engine next(folder);
  frontend.Next(ClientEvent::Kind::kReady);
  CheckTraffic(frontend, next);
}

TEST_CASE("wire: an engine that is gone is not waited for beyond a limit") {
  const TempFolder folder;
  FrontendEndpointOptions options = FrontendIn(folder);
  options.last_outputs_s = 0.01;
  Inbox<ClientEvent> events;
  FrontendEndpoint frontend(options);
  frontend.SetClient(0, CallbacksInto(&events));
  REQUIRE(frontend.Start().ok());
  BareEngine engine(folder);
  Socket input = engine.ConnectInput(0);
  CHECK(events.Next()->kind == ClientEvent::Kind::kReady);
  const zmq::socket_t output = engine.ConnectOutput();
  input.Close();
  CHECK(events.Next()->kind == ClientEvent::Kind::kLost);
}

TEST_CASE("wire: a request that cannot be decoded gets an error if its sender can be read") {
  const TempFolder folder;
  Frontend frontend(folder);
  Engine engine(folder);
  frontend.Next(ClientEvent::Kind::kReady);
  EngineCoreRequest request;
  request.request_id = "bad";
  request.prompt_token_ids = {1, -5};  // the encoder does not check, the decoder does
  EncodedMessage message;
  Encode(request, &message);
  frontend.endpoint.Send(0, 0, RequestType::kAdd, std::move(message));
  const ClientEvent event = frontend.Next(ClientEvent::Kind::kOutputs);
  REQUIRE(event.outputs.outputs.size() == 1);
  CHECK(event.outputs.outputs[0].request_id == "bad");
  CHECK(event.outputs.outputs[0].finish_reason == FinishReason::kError);
  CHECK(event.outputs.outputs[0].error->code == kErrorValidation);
  CheckTraffic(frontend, engine);
}

TEST_CASE("wire: garbage on every socket does no harm") {
  const TempFolder folder;
  Frontend frontend(folder);
  Engine engine(folder);
  frontend.Next(ClientEvent::Kind::kReady);
  const std::string base = "ipc://" + folder.path() + "/wire/";
  const uint64_t seed = 20260117;
  CAPTURE(seed);
  zmq::context_t context = MakeContext();
  uint64_t draws = 0;
  const auto random_bytes = [&](uint64_t limit) {
    std::string bytes(MixBits(seed + draws++) % limit, '\0');
    for (char& c : bytes) c = static_cast<char>(MixBits(seed + draws++));
    return bytes;
  };
  for (const std::string& name : {std::string("handshake"), OwnName("input_0")}) {
    for (const std::string& identity :
         {std::string("\x09\x00", 2), std::string("four"), std::string("\x00\x01", 2)}) {
      Socket socket;
      socket.Open(context, zmq::socket_type::dealer);
      socket.SetIdentity(identity);
      REQUIRE(socket.Connect(base + name).ok());
      for (int i = 0; i < 20; ++i) {
        const std::string a = random_bytes(50), b = random_bytes(50);
        const std::string_view frames[] = {a, b};
        CHECK(socket.Send(std::span(frames).first(i % 2 + 1)));
      }
      socket.Close(1000);
    }
  }
  Socket push;
  push.Open(context, zmq::socket_type::push);
  REQUIRE(push.Connect(base + OwnName("output_0")).ok());
  for (int i = 0; i < 100; ++i) {
    const std::string bytes = random_bytes(60);
    const std::string_view frames[] = {bytes};
    CHECK(push.Send(frames));
  }
  push.Close(1000);
  for (int i = 0; i < 20; ++i) {
    frontend.endpoint.Send(0, 0, RequestType::kUtility, EncodedMessage{random_bytes(40), {}});
  }
  CheckTraffic(frontend, engine);
}

TEST_CASE(
    "wire: arrays too large for the body are sent in frames of their own, and records are reused") {
  const TempFolder folder;
  Frontend frontend(folder);
  Engine engine(folder);
  frontend.Next(ClientEvent::Kind::kReady);
  EngineCoreOutputs outputs = OneToken("r", 5);
  LogprobsRows& rows = outputs.outputs[0].new_logprobs.emplace();
  rows.num_rows = 1;
  rows.num_columns = 1000;
  rows.token_ids.assign(1000, 3);
  rows.logprobs.assign(1000, -2.5f);
  rows.ranks = {17};
  for (int i = 0; i < 5; ++i) {
    engine.endpoint.Send(0, outputs);
    ClientEvent event = frontend.Next(ClientEvent::Kind::kOutputs);
    CHECK(event.outputs == outputs);
    frontend.endpoint.Recycle(std::move(event.outputs));
    // The record that was sent comes back with the memory of its id.
    EngineCoreOutputs spent = engine.endpoint.TakeSpent();
    CHECK(spent.outputs.size() <= 1);
  }
}

TEST_CASE("wire: Start refuses folders open to others, locked folders and impossible addresses") {
  const TempFolder folder;
  Frontend frontend(folder);
  FrontendEndpoint again(FrontendIn(folder));
  CHECK(again.Start().code() == StatusCode::kAlreadyExists);

  FrontendEndpointOptions options = FrontendIn(folder);
  const std::string open_folder = folder.path() + "/open";
  REQUIRE(mkdir(open_folder.c_str(), 0700) == 0);
  REQUIRE(chmod(open_folder.c_str(), 0755) == 0);
  options.data_address = "ipc://" + open_folder;
  FrontendEndpoint shared(options);
  CHECK(shared.Start().code() == StatusCode::kFailedPrecondition);

  Inbox<EngineInput> inbox;
  EngineEndpointOptions engine_options;
  engine_options.handshake_address = "carrier-pigeon://home";
  EngineEndpoint engine(engine_options, inbox.Pusher());
  CHECK_FALSE(engine.Start().ok());
}

// Whether a socket greets a process of this user. -1: there is no way to it.
int GreetsUser(const std::string& path, uid_t user) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    constexpr int kPatienceMs = 10000;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    pollfd waiting = {fd, POLLIN, 0};
    char byte;
    if (setuid(user) != 0 ||
        connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
        poll(&waiting, 1, kPatienceMs) != 1) {
      _exit(2);
    }
    _exit(read(fd, &byte, 1) == 1 ? 1 : 0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) < 2 ? WEXITSTATUS(status) : -1;
}

TEST_CASE("wire: processes of other users are refused, whatever the folder allows") {
  if (geteuid() != 0) {
    WARN("skipped: only root can act as another user");
    return;
  }
  constexpr uid_t kOtherUser = 65534;
  const TempFolder folder;
  Frontend frontend(folder);
  REQUIRE(chmod(folder.path().c_str(), 0777) == 0);
  int num_sockets = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (entry.is_directory()) REQUIRE(chmod(entry.path().c_str(), 0777) == 0);
    if (!entry.is_socket()) continue;
    REQUIRE(chmod(entry.path().c_str(), 0777) == 0);
    CAPTURE(entry.path().string());
    CHECK(GreetsUser(entry.path(), 0) == 1);
    CHECK(GreetsUser(entry.path(), kOtherUser) == 0);
    ++num_sockets;
  }
  CHECK(num_sockets >= 3);
}

// ---- Engines that form a group ----

// An engine's sockets to the coordinator, by the names that the reply to its HELLO has.
struct Member {
  Member(zmq::context_t& context, const EngineAddresses& addresses)
      : words(context, zmq::socket_type::xsub), reports(context, zmq::socket_type::push) {
    for (zmq::socket_t* const socket : {&words, &reports}) socket->set(zmq::sockopt::linger, 0);
    words.set(zmq::sockopt::rcvtimeo, 10'000);
    words.connect(*addresses.coordinator_input);
    reports.connect(*addresses.coordinator_output);
    words.send(zmq::str_buffer("\x01"));
  }
  // The frames of the next message, one after another; empty: none came.
  std::string Next() {
    std::string frames;
    zmq::message_t frame;
    do {
      if (!words.recv(frame)) return "";
      frames += frame.to_string();
    } while (frame.more());
    return frames;
  }
  void Report(int index, std::optional<int64_t> started, std::optional<int64_t> completed) {
    EngineCoreOutputs report;
    report.engine_index = index;
    report.start_wave = started;
    report.wave_complete = completed;
    EncodedMessage message;
    Encode(report, &message);
    reports.send(zmq::buffer(message.body));
  }

  zmq::socket_t words, reports;
};

TEST_CASE("wire: engines of a group get their ports, and a coordinator of their waves") {
  const TempFolder folder;
  FrontendEndpointOptions options = FrontendIn(folder, 2);
  options.handshake_address = "tcp://127.0.0.1:0";
  options.data_address = "tcp://127.0.0.1";
  options.group_master = "127.0.0.1";
  Inbox<ClientEvent> events;
  FrontendEndpoint frontend(options);
  frontend.SetClient(0, CallbacksInto(&events));
  REQUIRE(frontend.Start().ok());

  zmq::context_t context;
  zmq::socket_t handshake(context, zmq::socket_type::dealer);
  handshake.set(zmq::sockopt::linger, 0);
  handshake.set(zmq::sockopt::rcvtimeo, 10'000);
  handshake.set(zmq::sockopt::routing_id, EngineIdentity(0));
  handshake.connect(frontend.handshake_address());
  EncodedMessage hello;
  EngineStatus status;
  status.status = kStatusHello;
  status.local = false;
  status.headless = true;
  Encode(status, &hello);
  handshake.send(zmq::buffer(hello.body));
  zmq::message_t reply;
  REQUIRE(handshake.recv(reply));
  InitMessage init;
  const std::string_view frames[] = {{reply.data<char>(), reply.size()}};
  REQUIRE(Decode(frames, &init).ok());
  const auto config = nlohmann::json::from_msgpack(init.parallel_config.packed);
  CHECK(config["data_parallel_master_ip"] == "127.0.0.1");
  CHECK(config["data_parallel_size"] == 2);
  CHECK(config["data_parallel_master_port"].get<int>() > 0);
  CHECK(config["_data_parallel_master_port_list"].size() == 7);
  CHECK(config["_coord_store_port"] == 0);

  Member first(context, init.addresses);
  // As one that dies and comes back before the others are there: it is counted once.
  first.words.send(zmq::str_buffer("\0"));
  first.words.send(zmq::str_buffer("\x01"));
  Member second(context, init.addresses);
  CHECK(first.Next() == "READY");
  CHECK(second.Next() == "READY");
  first.reports.send(zmq::str_buffer("no report"));
  first.Report(7, 0, std::nullopt);
  second.Report(1, 0, std::nullopt);
  const std::string start = "\x02\x92";
  CHECK(first.Next() == start + std::string("\x00\x01", 2));
  CHECK(second.Next() == start + std::string("\x00\x01", 2));
  first.Report(0, 0, std::nullopt);  // it runs already
  first.Report(0, std::nullopt, 0);
  first.Report(0, 1, std::nullopt);
  CHECK(second.Next() == start + std::string("\x01\x00", 2));
  CHECK(first.Next() == start + std::string("\x01\x00", 2));
  // One that comes back gets its READY at once; so does everybody.
  Member third(context, init.addresses);
  CHECK(third.Next() == "READY");
  CHECK(second.Next() == "READY");
}

}  // namespace
}  // namespace tandem::wire
