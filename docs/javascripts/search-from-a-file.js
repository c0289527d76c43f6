/* A page that was opened from a disk may not start a worker, which the search needs. There, the
   program of the worker runs in an empty frame instead. */
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
      this.loaded = new Promise((resolve, reject) => {
        const script = inner.document.createElement("script");
        Object.assign(script, { src: new URL(address, location), onload: resolve, onerror: reject });
        inner.document.body.append(script);
      });
      this.loaded.catch((event) => this.onerror?.(event));
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.onmessage({ data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
