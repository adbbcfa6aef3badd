#include "frontend/http/write_batch.h"

#include <poll.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/http/connection.h"
#include "tests/support/files/socket_pair.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Connections to peers that read without waiting. Everything happens on one shard.
struct Peer {
  explicit Peer(Shard* shard) {
    const int fd = sockets.TakeFd();
    connection = std::make_unique<Connection>(shard, fd, MakePlainTransport(fd), [] {});
  }
  ~Peer() {
    if (connection != nullptr) connection->Close();
  }
  std::string Read() const { return sockets.ReadAtPeer(); }
  SocketPair sockets;
  std::unique_ptr<Connection> connection;
};

struct OneShard {
  OneShard() { shard.Start(); }
  ~OneShard() {
    shard.Stop();
    shard.Join();
  }
  // Runs the function on the shard, until it has returned.
  template <class F>
  void Run(F function) {
    std::promise<void> done;
    auto future = done.get_future();
    shard.Post([&] {
      function();
      done.set_value();
    });
    future.get();
  }
  Shard shard{0};
};

void WriteInBatch(Connection* connection, std::string_view text) {
  const WriteBatch batch;
  connection->Write({text});
}

TEST_CASE("what is written in a batch leaves when it ends, in order") {
  OneShard one;
  one.Run([&] {
    Peer a(&one.shard), b(&one.shard), alone(&one.shard);
    alone.connection->Write({"at once"});
    CHECK(alone.Read() == "at once");
    {
      const WriteBatch batch;
      a.connection->Write({"1", "22", "333"});
      {
        const WriteBatch part_of_it;
        b.connection->Write({"x"});
        a.connection->Write({"4444"});
        a.connection->Write({""});
      }
      CHECK(a.Read().empty());
      CHECK(b.Read().empty());
      CHECK(a.connection->unsent() == 10);
    }
    CHECK(a.Read() == "1223334444");
    CHECK(b.Read() == "x");
    CHECK(a.connection->unsent() == 0);
    a.connection->Write({"after it"});
    CHECK(a.Read() == "after it");
  });
}

TEST_CASE("a batch of more connections than one call sends") {
  OneShard one;
  one.Run([&] {
    std::vector<std::unique_ptr<Peer>> peers;
    for (int i = 0; i < 200; ++i) peers.push_back(std::make_unique<Peer>(&one.shard));
    for (int round = 0; round < 3; ++round) {
      {
        const WriteBatch batch;
        for (size_t i = 0; i < peers.size(); ++i) {
          peers[i]->connection->Write({std::to_string(i), ";"});
        }
        for (size_t i = 0; i < peers.size(); i += 3) peers[i]->connection->Write({"again"});
      }
      for (size_t i = 0; i < peers.size(); ++i) {
        CHECK(peers[i]->Read() == std::to_string(i) + ";" + (i % 3 == 0 ? "again" : ""));
      }
    }
  });
}

TEST_CASE("a connection that ends within a batch has sent its bytes") {
  OneShard one;
  one.Run([&] {
    Peer marked(&one.shard), shut(&one.shard), gone(&one.shard), destroyed(&one.shard),
        other(&one.shard);
    gone.sockets.ClosePeer();
    {
      const WriteBatch batch;
      for (Peer* peer : {&marked, &shut, &gone, &destroyed, &other}) {
        peer->connection->Write({"bytes"});
      }
      marked.connection->MarkClosed();
      CHECK(marked.Read() == "bytes");
      marked.connection->Write({"not these"});
      shut.connection->ShutdownWrites();
      CHECK(shut.Read() == "bytes");
      destroyed.connection.reset();
      CHECK(!gone.connection->closed());
    }
    CHECK(gone.connection->closed());
    CHECK(other.Read() == "bytes");
    CHECK(marked.Read().empty());
  });
}

TEST_CASE("what does not fit the socket follows, and large bodies join no batch") {
  OneShard one;
  std::optional<Peer> peer;
  const std::string part(10 << 10, 'p'), large(64 << 10, 'l');
  std::string expected, got;
  one.Run([&] {
    peer.emplace(&one.shard);
    Connection& connection = *peer->connection;
    {
      const WriteBatch batch;
      connection.Write({large});
      CHECK(peer->Read() == large);
    }
    while (connection.unsent() == 0) {
      WriteInBatch(&connection, part);
      expected += part;
    }
    const WriteBatch batch;
    connection.Write({"the end"});
    expected += "the end";
  });
  // The shard sends the rest as the peer reads.
  pollfd readable{peer->sockets.peer(), POLLIN, 0};
  while (got.size() < expected.size() && ::poll(&readable, 1, 20000) == 1) got += peer->Read();
  CHECK(got == expected);
  one.Run([&] { peer.reset(); });
}

}  // namespace
}  // namespace tandem
