package gonfs

import (
	"fmt"
	"log/slog"

	nfs "github.com/willscott/go-nfs"
)

// JoinLog sends the library's log to ours. The library logs to a global variable, so
// main calls it once, before anything is served.
func JoinLog(log *slog.Logger) { nfs.SetLogger(&logger{log: log}) }

// logger is the library's log. The library's errors are mostly ordinary failures
// that the client gets in its reply, so all of it is detail.
type logger struct{ log *slog.Logger }

func (l *logger) debug(args []any) { l.log.Debug("go-nfs: " + fmt.Sprint(args...)) }
func (l *logger) debugf(format string, args []any) {
	l.log.Debug("go-nfs: " + fmt.Sprintf(format, args...))
}
func (l *logger) SetLevel(nfs.LogLevel)                   {}
func (l *logger) GetLevel() nfs.LogLevel                  { return nfs.InfoLevel }
func (l *logger) ParseLevel(string) (nfs.LogLevel, error) { return nfs.InfoLevel, nil }
func (l *logger) Panic(args ...any)                       { panic(fmt.Sprint(args...)) }
func (l *logger) Fatal(args ...any)                       { panic(fmt.Sprint(args...)) }
func (l *logger) Error(args ...any)                       { l.debug(args) }
func (l *logger) Warn(args ...any)                        { l.debug(args) }
func (l *logger) Info(args ...any)                        { l.debug(args) }
func (l *logger) Debug(args ...any)                       { l.debug(args) }
func (l *logger) Trace(...any)                            {}
func (l *logger) Print(args ...any)                       { l.debug(args) }
func (l *logger) Panicf(format string, args ...any)       { panic(fmt.Sprintf(format, args...)) }
func (l *logger) Fatalf(format string, args ...any)       { panic(fmt.Sprintf(format, args...)) }
func (l *logger) Errorf(format string, args ...any)       { l.debugf(format, args) }
func (l *logger) Warnf(format string, args ...any)        { l.debugf(format, args) }
func (l *logger) Infof(format string, args ...any)        { l.debugf(format, args) }
func (l *logger) Debugf(format string, args ...any)       { l.debugf(format, args) }
func (l *logger) Tracef(string, ...any)                   {}
func (l *logger) Printf(format string, args ...any)       { l.debugf(format, args) }
