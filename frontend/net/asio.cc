// Asio's own implementation, compiled once for the whole frontend.

#include <boost/asio/impl/src.hpp>
